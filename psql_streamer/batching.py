"""How large batches become, and who waits for what and for how long: every number that decides it and is no option.

docs/batching.md goes through the stages and has the options beside these. Pure, and without an import: the reader
process loads it. "Decision N" is docs/decisions/N; 040 stands for numbers of which no measurement is written down.
"""

# The socket.

SOCKET_RECEIVE_BYTES = 256 << 10
"""Of one recv: it gives hundreds of messages for one system call (decision 001)."""

SOCKET_READ_ON_BYTES = 64 << 10
"""When a recv gave as much, there may be more, and it is read on before anything else (decision 040)."""

ENCRYPTED_LOOK_SECONDS = 0.05
"""Between two looks at an encrypted stream that is silent: TLS hides bytes from select (decision 001)."""

READER_NAP_SECONDS = 0.00015
"""That the reader sleeps after a turn that took less: under load a wake-up for every few rows costs more than reading
them. The walsender fills a Unix socket's buffer (some 270 messages) in about 0.7 ms (decision 040)."""

# The reader process, when a block is asked for.

FAST_STREAM_BYTES_PER_SECOND = 4 << 20
"""From which on a stream counts as fast, about 30,000 rows of 140 bytes: then a block is gathered (decision 002)."""

LINGER_SECONDS = 0.02
"""That a fast stream gathers: a block costs some hundred microseconds whatever its size (decision 002)."""

LINGER_BYTES = 1 << 20
"""That make a block large enough not to gather any longer (decision 002)."""

TRANSACTION_REST_SECONDS = 0.002
"""That a slow stream waits for the rest of a transaction: the messages of a small one follow each other (decision
002)."""

# The source's thread.

READ_AHEAD_BYTES = 64 << 10
"""Of a block, from which on the next is asked for before this one is decoded: in a slow stream rows had better wait in
the reader, where they become one batch (decision 015)."""

WORK_AHEAD_BYTES = 128 << 10
"""Of a batch in memory, from which on the next is read while the sinks are at work on it: a batch costs a sink 2 to 5
ms whether it has one row or a hundred, so small ones had better become one (decision 015)."""

LOOK_SECONDS = 0.2
"""That a thread waits at most before it looks whether the service stops; what it waits for wakes it (decision 040)."""

# The queues.

QUEUE_LOOK_SECONDS = 0.1
"""As LOOK_SECONDS, for a thread that waits for room in a queue (decision 040)."""

JOINED_BATCHES = 32
"""That wait behind one another are put together when they are small: a thousand batches of one row take a hundred times
the memory of one batch of a thousand rows (decision 032)."""

JOINED_BYTES = 1 << 20
"""Up to which batches are put together (decision 032)."""

PASSED_ON_BATCHES = 1
"""That wait behind a handler for the next one or the sink: it works ahead by one, and what waits longer waits before
it, where it can be merged (decision 040)."""

# The handlers.

SPARK_BATCHES = 4
"""That wait may go through Spark as one: a job costs 30 to 40 ms before its first row (decision 008)."""

PIECE_ROWS = 10_000
"""Of what a handler gave go on at once: encoded, a row takes several times its size (decisions 003 and 008)."""

# The Kafka sink.

CLIENT_QUEUE_BYTES = 64 << 20
"""That librdkafka may hold of a batch; handing over waits while it is full (decision 011)."""

CLIENT_QUEUE_RECORDS = 200_000
"""As CLIENT_QUEUE_BYTES, in records (decision 040)."""

DELIVERY_LOOK_SECONDS = 0.1
"""Between two looks at the clock and at an interruption, for a write that waits for acknowledgements (decision 040)."""

REPORTS_LOOK_SECONDS = 0.005
"""Between two looks at delivery reports, where a client without idempotence makes one a record: librdkafka waits for
them to be taken (decision 022)."""

# Positions.

STORE_INTERVAL_SECONDS = 0.05
"""Between two stores: each is a sync of the disk, which PostgreSQL may share. What became durable meanwhile is
delivered again after a crash (decision 015)."""

CONFIRM_SECONDS = 0.1
"""Within which the server hears of a position that was stored: a status update for each would be one every
STORE_INTERVAL_SECONDS (decision 040)."""

# Encoding.

FEW_ROWS = 32
"""Of a batch, up to which they are written one by one: what goes by cells costs some 10 microseconds a call, however
few values there are (decision 046)."""

FEW_CELLS = 256
"""The same, of an image of these rows (decision 046)."""
