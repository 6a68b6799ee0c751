import java.io.DataOutputStream;
import java.io.File;
import java.io.FileNotFoundException;
import java.lang.ref.Reference;
import java.lang.ref.SoftReference;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.file.OpenOption;
import java.nio.file.StandardOpenOption;
import java.util.Properties;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.PythonRDD;
import org.apache.spark.rdd.ParallelCollectionPartition;
import org.apache.spark.rdd.RDD;
import org.apache.spark.serializer.SerializerInstance;
import org.apache.spark.sql.api.python.PythonSQLUtils;
import scala.collection.Iterator;
import scala.collection.immutable.List;
import scala.reflect.ClassTag;

/** Plans that the thread of a call runs: by_thread.py says which. Compiled in Spark's JVM, by Janino: without generics. */
public final class KeptPlans {
    /** The id of tasks that are none, under which the block manager keeps locks of the driver's own threads. */
    private static final long NO_TASK = -1024;

    private final ClassTag anything = scala.reflect.ClassTag$.MODULE$.Any();
    private final Field taskId;
    private final Field localProperties;

    /** TaskContextImpl's constructor is another one in every release, so the fields of an empty one are set. */
    public KeptPlans() throws Exception {
        taskId = open("taskAttemptId");
        localProperties = open("localProperties");
    }

    /** The plan whose record batches are those of an RDD. settings: of its session. */
    public KeptPlan keep(RDD batches, SerializerInstance serializer, Properties settings) {
        return new KeptPlan(batches, serializer, settings);
    }

    private static Field open(String name) throws Exception {
        Field field = Class.forName("org.apache.spark.TaskContextImpl").getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }

    public final class KeptPlan {
        /** It has what was broadcast for it, which Spark removes as soon as nobody on the driver refers to it. Its copies
         * only know the number of that. */
        private final RDD original;
        private final ByteBuffer serialized;
        private final SerializerInstance serializer;
        private final Properties settings;
        private final ConcurrentLinkedQueue free = new ConcurrentLinkedQueue();

        KeptPlan(RDD original, SerializerInstance serializer, Properties settings) {
            this.original = original;
            this.serialized = serializer.serialize(original, anything);
            this.serializer = serializer;
            this.settings = settings;
        }

        /** Runs the plan over the stream of Arrow in a file, which is taken away to another name, and writes the result in
         * its place. A second call for the same file finds none: py4j sends a call again when its connection is closed. */
        public void run(String path, String takenTo) throws Exception {
            File taken = new File(takenTo);
            if (!new File(path).renameTo(taken)) {
                throw new FileNotFoundException("another call has taken the rows");
            }
            TaskContext context = org.apache.spark.TaskContext$.MODULE$.empty();
            taskId.set(context, NO_TASK);
            localProperties.set(context, settings);
            org.apache.spark.TaskContext$.MODULE$.setTaskContext(context);
            try {
                RDD batches = take();
                write(batches.iterator(read(taken), context), taken);
                free.add(new SoftReference(batches));
            } finally {
                release(context);
            }
        }

        /** A copy of the RDD that nobody else uses meanwhile, as each task has one. One that a run has ended in an
         * exception is not used again: its expressions are left as they were at that moment. Their buffers stay as large
         * as the largest row was, so that copies are let go of where memory is short. */
        private RDD take() {
            for (Reference one = (Reference) free.poll(); one != null; one = (Reference) free.poll()) {
                RDD copy = (RDD) one.get();
                if (copy != null) {
                    return copy;
                }
            }
            return (RDD) serializer.deserialize((ByteBuffer) serialized.duplicate(), anything);
        }

        private ParallelCollectionPartition read(File taken) {
            List batches = List.from(PythonSQLUtils.readArrowStreamFromFile(taken.getPath()));
            return new ParallelCollectionPartition(0, 0, batches, anything);
        }

        /** What a run holds is let go by listeners of its task. One that fails must not hide what the run raised. */
        private void release(TaskContext context) {
            try {
                context.markTaskCompleted(scala.Option$.MODULE$.empty());
            } catch (RuntimeException alsoFailed) {
            } finally {
                org.apache.spark.TaskContext$.MODULE$.unset();
            }
        }

        /** The file is not made: who does not wait any more has removed it, and nobody would remove another one. It is
         * shortened behind the result, and not before: ext4 sends a file to the disk that is written after it was emptied
         * (ext4(5), auto_da_alloc), and who removes it waits for the disk. */
        private void write(Iterator batches, File taken) throws Exception {
            FileChannel file = FileChannel.open(taken.toPath(), new OpenOption[] {StandardOpenOption.WRITE});
            try {
                DataOutputStream stream = new DataOutputStream(Channels.newOutputStream(file));
                PythonRDD.writeIteratorToStream(batches, stream);
                stream.flush();
                file.truncate(file.position());
            } finally {
                file.close();
            }
        }
    }
}
