"""The constants that decide how large batches become, and which stage waits for what and for how long.

docs/batching.md describes the stages and the options. Pure, and without an import: the reader process loads it.
"Decision N" is docs/decisions/N; 040 has the numbers of which no measurement is written down.
"""

# The socket.

SOCKET_RECEIVE_BYTES = 256 << 10
"""The most that one recv reads: hundreds of messages for one system call (decision 001)."""

SOCKET_READ_ON_BYTES = 64 << 10
"""After a recv of this size there may be more, and the reader reads again first (decision 040)."""

ENCRYPTED_LOOK_SECONDS = 0.05
"""The polling interval of a silent encrypted stream: select does not see bytes that TLS has buffered (decision 001)."""

READER_NAP_SECONDS = 0.00015
"""The reader's sleep after a turn shorter than this: under load a wake-up for every few rows costs more than reading
them. The walsender fills a Unix socket's buffer (some 270 messages) in about 0.7 ms (decision 040)."""

SOCKET_WINDOW_BYTES = 128 << 10
"""The receive buffer (SO_RCVBUF) of a TCP connection to a server on the same machine: what is beyond waits in the
server's send buffer, where a message costs the walsender a third (decision 109)."""

SOCKET_GATHER_SECONDS = 0.01
"""How long the reader leaves such a connection alone while the stream is fast (decision 109)."""

SOCKET_GATHER_BYTES = 512 << 10
"""The bytes that should wait there at most: the server's send buffer holds more than 1 MB (decision 109)."""

# The reader process, when a block is asked for.

FAST_STREAM_BYTES_PER_SECOND = 4 << 20
"""The rate above which a stream is fast, about 30,000 rows of 140 bytes: then a block is gathered (decision 002)."""

LINGER_SECONDS = 0.02
"""How long a block is gathered: it costs some hundred microseconds whatever its size (decision 002)."""

LINGER_BYTES = 1 << 20
"""The size at which a block is large enough, and gathering stops (decision 002)."""

TRANSACTION_REST_SECONDS = 0.002
"""How long the reader waits in a slow stream for the rest of a transaction: the messages of a small one follow each
other (decision 002)."""

SLOW_STREAM_BLOCK_SECONDS = 0.0045
"""Between two blocks of a slow stream the reader sleeps: 210 batches a second take less than half the CPU of 500, and
rows wait 1.8 ms longer (decision 049)."""

# The source's thread.

READ_AHEAD_BYTES = 64 << 10
"""The block size from which the next block is requested before this one is decoded: in a slow stream rows should wait
in the reader, where they become one batch (decision 015)."""

BLOCK_ANSWER_SECONDS = 0.005
"""How long rows of a snapshot, which lie ready, wait for the reader's answer where the stream had a block in its last
turn: more than the reader waits for the rest of a transaction (decision 107)."""

WORK_AHEAD_BYTES = 128 << 10
"""The batch size in memory from which the next batch is read while the sinks work: a batch costs a sink 2 to 5 ms
whether it has one row or a hundred, so small ones should become one (decision 015)."""

LOOK_SECONDS = 0.2
"""How often a waiting thread checks for a stop; what it waits for wakes it at once (decision 040)."""

# The queues.

QUEUE_LOOK_SECONDS = 0.1
"""As LOOK_SECONDS, for a thread that waits for room in a queue (decision 040)."""

JOINED_BATCHES = 32
"""The number of waiting batches that are merged into one, if they are small: a thousand batches of one row take a
hundred times the memory of one batch of a thousand rows (decision 032)."""

JOINED_BYTES = 4 << 20
"""The most bytes of the batches that are merged into one (decision 032)."""

PASSED_ON_BATCHES = 1
"""The most batches that wait after a handler: it works ahead by one, and the others wait before it, where they can be
merged (decision 040)."""

# The handlers.

SPARK_BATCHES = 4
"""The most batches that go through Spark as one where its executors are elsewhere: a job costs 30 ms and more before
its first row (decision 008). A local Spark runs most plans without a job, and four batches as one take 60 MB more
(decision 079)."""

SPARK_FIRST_ROWS = 1000
"""The size of the first batch for rules that may make several rows of one: behind it, it is known how much they make
(decision 072)."""

SPARK_MADE_BYTES = 32 << 20
"""What rules should make of a batch at most where they make several rows of one, by the batches before: all of it is in
memory at once (decision 072)."""

PIECE_ROWS = 10_000
"""The size of the pieces in which a handler's result is passed on: an encoded row takes several times its size
(decisions 003 and 008)."""

# The Kafka sink.

CLIENT_QUEUE_BYTES = 64 << 20
"""The most bytes of a batch that librdkafka holds; producing waits while it is full (decision 011)."""

CLIENT_QUEUE_RECORDS = 200_000
"""As CLIENT_QUEUE_BYTES, in records (decision 040)."""

DELIVERY_LOOK_SECONDS = 0.1
"""How often a write that waits for acknowledgements checks the clock and for an interruption (decision 040)."""

NEXT_LOOK_SECONDS = 0.002
"""How often a write that waits for acknowledgements looks for a next batch whose records are made meanwhile; less and
less often while none comes, down to every DELIVERY_LOOK_SECONDS."""

REPORTS_LOOK_SECONDS = 0.005
"""How often delivery reports are read from a client without idempotence, which makes one for each record: librdkafka
waits until they are read (decision 022)."""

REQUEST_RECORDS = 40
"""The records that a request to Kafka should have, on average. A request has the records of one partition, and
costs the client and the broker as much as some 30 records (decision 092)."""

TOGETHER_BATCHES = 8
"""The most batches that a sink writes together, so that requests have as many records (decision 092)."""

TOGETHER_BYTES = 16 << 20
"""The size of these batches in memory from which no further one is added (decision 092)."""

TOGETHER_SECONDS = 0.06
"""How long a sink waits in all for further batches that it likes to write together, where it has AHEAD_BYTES of them:
the source is making the next one. Requests with ten records in place of forty cost the machine far more (decision
154)."""

AHEAD_BYTES = 1 << 20
"""The size in memory of the batches that wait from which no further one is made while a sink writes that likes several
together: 10,000 rows of 100 bytes have more (decision 153)."""

TRANSACTION_BYTES = 8 << 20
"""The size of the batches in memory from which no further one is added to a transaction: beginning and committing one
takes 10 ms, and all of it is in memory until it is committed (decision 087)."""

TRANSACTION_LOOK_SECONDS = 1.0
"""As DELIVERY_LOOK_SECONDS, for brokers that begin or commit a transaction (decision 087)."""

# Positions.

STORE_INTERVAL_SECONDS = 0.05
"""The shortest time between two stores: each is a sync of the disk, which PostgreSQL may share. Changes that became
durable in between are delivered again after a crash (decision 015)."""

CONFIRM_SECONDS = 0.1
"""The time within which a stored position is confirmed to the server: a status update for each store would be one every
STORE_INTERVAL_SECONDS (decision 040)."""

# Encoding.

FEW_ROWS = 32
"""Up to this many rows of a batch are encoded one by one: encoding by cells costs some 10 microseconds a call, however
few values there are (decision 046)."""

FEW_CELLS = 256
"""The same for the cells of an image, where rows are not read one by one (decision 046)."""

FEW_FRAMES = 128
"""Up to this many frames of a block are read one by one: 32 transactions of one row have 96 (decision 048)."""

FEW_BYTES = 32 << 10
"""The same in bytes of the block: long values are not copied one by one (decision 048)."""
