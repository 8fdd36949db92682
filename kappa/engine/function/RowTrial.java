package kappa;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.Partition;
import org.apache.spark.QueryContext;
import org.apache.spark.QueryContextType;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.SparkThrowable;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Nil$;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/**
 * Runs plans over few rows in this JVM and thread, and tells how they fail.
 *
 * A job of Spark's costs tens of milliseconds, and a flood of failing rows has a job for each. Here
 * a run costs what computing its rows does. Each run has a task's context of its own, whose memory
 * and workers are given back at its end, as at the end of a task.
 */
public class RowTrial {
  private static final AtomicLong IDS = new AtomicLong(Long.MAX_VALUE);
  private final List plans = new ArrayList();

  /** An input of the plans: the rows that are tried. */
  public static class Input extends RDD {
    private List rows = new ArrayList();
    private InternalRow[] every = new InternalRow[0];

    public Input(SparkContext spark) {
      super(spark, Nil$.MODULE$, ClassTag$.MODULE$.apply(InternalRow.class));
    }

    public scala.collection.Iterator compute(Partition split, TaskContext context) {
      return CollectionConverters.asScala(this.rows.iterator());
    }

    public Partition[] getPartitions() {
      return new Partition[] {new FilePartition(0, new PartitionedFile[0])};
    }
  }

  public Input addInput(SparkContext spark) {
    return new Input(spark);
  }

  public void addPlan(RDD plan) {
    this.plans.add(plan);
  }

  public void put(Input input, InternalRow[] rows) {
    input.every = rows;
  }

  /** Returns null, or the error of the first plan that fails and the line that made its part. */
  public String[] tried(Input input, int start, int end) {
    input.rows = Arrays.asList(input.every).subList(start, end);
    long id = IDS.decrementAndGet();
    SparkEnv env = SparkEnv.get();
    TaskMemoryManager memory = new TaskMemoryManager(env.memoryManager(), id);
    TaskContextImpl context =
        new TaskContextImpl(
            0, 0, 0, id, 0, 1, memory, new Properties(), env.metricsSystem(), TaskMetrics.empty(),
            1, (scala.collection.immutable.Map) Map$.MODULE$.empty());
    TaskContext$.MODULE$.setTaskContext(context);
    String[] failure = null;
    try {
      for (Iterator each = this.plans.iterator(); each.hasNext(); ) {
        this.run((RDD) each.next(), context);
      }
    } catch (Exception error) {
      failure = new String[] {this.told(error), this.line(error)};
    } finally {
      input.rows = new ArrayList();
      try {
        context.markTaskCompleted(Option.empty());
      } finally {
        TaskContext$.MODULE$.unset();
        memory.cleanUpAllAllocatedMemory();
        env.memoryManager().releaseAllExecutionMemoryForTask(id);
      }
    }
    return failure;
  }

  private void run(RDD plan, TaskContext context) {
    Partition[] parts = plan.partitions();
    for (int number = 0; number < parts.length; number++) {
      scala.collection.Iterator rows = plan.iterator(parts[number], context);
      while (rows.hasNext()) {
        rows.next();
      }
    }
  }

  private String told(Throwable error) {
    StringBuilder text = new StringBuilder();
    for (Throwable each = error; each != null; each = each.getCause()) {
      text.append(each.getMessage() == null ? each.toString() : each.getMessage()).append("\n");
    }
    return text.toString();
  }

  private String line(Throwable error) {
    for (Throwable each = error; each != null; each = each.getCause()) {
      if (each instanceof SparkThrowable) {
        QueryContext[] contexts = ((SparkThrowable) each).getQueryContext();
        for (int number = 0; number < contexts.length; number++) {
          if (contexts[number].contextType() == QueryContextType.DataFrame) {
            return contexts[number].callSite();
          }
        }
      }
    }
    return "";
  }
}
