"""How large batches become, and who waits for what and for how long: every number that decides it and is no option.

docs/batching.md goes through the stages and has the options beside these. Pure, and without an import: the reader
process loads it. "Decision N" is docs/decisions/N; 040 stands for numbers of which no measurement is written down.
"""

# The socket.

SOCKET_RECEIVE_BYTES = 256 << 10
"""The buffer of one recv: it gives hundreds of messages for one system call (decision 001)."""

SOCKET_READ_ON_BYTES = 64 << 10
"""A recv that gave as much is followed by another one before anything else: there may be more (decision 040)."""

ENCRYPTED_LOOK_SECONDS = 0.05
"""The pause between two looks at an encrypted stream that is silent: TLS hides bytes from select (decision 001)."""

READER_NAP_SECONDS = 0.00015
"""The sleep of the reader after a turn that took less: under load a wake-up for every few rows costs more than reading
them. The walsender fills a Unix socket's buffer (some 270 messages) in about 0.7 ms (decision 040)."""

# The reader process, when a block is asked for.

FAST_STREAM_BYTES_PER_SECOND = 4 << 20
"""The rate of a fast stream, about 30,000 rows of 140 bytes a second: such a stream gathers (decision 002)."""

LINGER_SECONDS = 0.02
"""The time that a fast stream gathers: a block costs some hundred microseconds whatever its size (decision 002)."""

LINGER_BYTES = 1 << 20
"""The size of a block that is large enough not to gather any longer (decision 002)."""

TRANSACTION_REST_SECONDS = 0.002
"""The wait of a slow stream for the rest of a transaction: the messages of a small one follow each other (decision
002)."""

# The source's thread.

READ_AHEAD_BYTES = 64 << 10
"""A block of this size makes the source ask for the next one before it decodes: in a slow stream rows had better wait
in the reader, where they become one batch (decision 015)."""

WORK_AHEAD_BYTES = 128 << 10
"""After a batch of this size in memory the next one is read while the sinks are at work: a batch costs a sink 2 to 5 ms
whether it has one row or a hundred, so small ones had better become one (decision 015)."""

LOOK_SECONDS = 0.2
"""The longest wait of a thread before it looks whether the service stops; what it waits for wakes it (decision 040)."""

# The queues.

QUEUE_LOOK_SECONDS = 0.1
"""The same as LOOK_SECONDS, of a thread that waits for room in a queue (decision 040)."""

JOINED_BATCHES = 32
"""How many batches that wait in a queue are put together when they are small: a thousand batches of one row take a
hundred times the memory of one batch of a thousand rows (decision 032)."""

JOINED_BYTES = 1 << 20
"""The size up to which batches are put together (decision 032)."""

PASSED_ON_BATCHES = 1
"""How many batches wait behind a handler for the next one or the sink: it works ahead by one, and what waits longer
waits before it, where it can be merged (decision 040)."""

# The handlers.

SPARK_BATCHES = 4
"""How many batches may go through Spark as one: a job costs 30 to 40 ms before its first row (decision 008)."""

PIECE_ROWS = 10_000
"""How many rows of what a handler gave go on at once: encoded, a row takes several times its size (decisions 003 and
008)."""

# The Kafka sink.

CLIENT_QUEUE_BYTES = 64 << 20
"""How much of a batch librdkafka may hold; handing over waits while its queue is full (decision 011)."""

CLIENT_QUEUE_RECORDS = 200_000
"""The same as CLIENT_QUEUE_BYTES, in records (decision 040)."""

DELIVERY_LOOK_SECONDS = 0.1
"""The pause between two looks at the clock, and for an interruption, while a write waits for acknowledgements (decision
040)."""

REPORTS_LOOK_SECONDS = 0.005
"""The pause between two looks at delivery reports, where a client without idempotence makes one a record: librdkafka
waits for them to be taken (decision 022)."""

# Positions.

STORE_INTERVAL_SECONDS = 0.05
"""The pause between two stores: each is a sync of the disk, which PostgreSQL may share. What became durable meanwhile
is delivered again after a crash (decision 015)."""

CONFIRM_SECONDS = 0.1
"""The time within which the server hears of a position that was stored: a status update for each would be one every
STORE_INTERVAL_SECONDS (decision 040)."""

# Encoding.

FEW_ROWS = 32
"""Up to this many rows are written one by one: what goes by cells costs some 10 microseconds a call, however
few values there are (decision 046)."""

FEW_CELLS = 256
"""Up to this many cells are read, and written, one by one (decision 046)."""
