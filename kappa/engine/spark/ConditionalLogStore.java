package kappa;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;

/**
 * A log of Delta's in a bucket, whose server decides which of two writers has made a version.
 *
 * Delta's own store looks first and writes then, so of two processes both would win. Here it is one
 * request, which the server refuses if there is such a version. A commit of equal bytes is this
 * one, since a commit has an id of its own: its answer was lost, and it was sent again.
 */
public class ConditionalLogStore extends S3SingleDriverLogStore {
  private static final String ONLY_NEW = "fs.option.create.conditional.overwrite";

  public ConditionalLogStore(Configuration conf) {
    super(conf);
  }

  public void write(Path path, Iterator actions, Boolean overwrite, Configuration conf)
      throws IOException {
    if (overwrite.booleanValue()) {
      super.write(path, actions, overwrite, conf);
      return;
    }
    ByteArrayOutputStream lines = new ByteArrayOutputStream();
    while (actions.hasNext()) {
      lines.write(((String) actions.next() + "\n").getBytes("UTF-8"));
    }
    byte[] commit = lines.toByteArray();
    FileSystem system = path.getFileSystem(conf);
    boolean refused = false;
    try {
      FSDataOutputStreamBuilder made = system.createFile(path);
      made.overwrite(false);
      made.must(ONLY_NEW, true);
      FSDataOutputStream file = (FSDataOutputStream) made.build();
      file.write(commit);
      file.close();
    } catch (FileAlreadyExistsException error) {
      refused = true;
    } catch (RemoteFileChangedException error) {
      refused = true;
    }
    if (refused && !Arrays.equals(commit, this.bytesOf(system, path))) {
      throw new java.nio.file.FileAlreadyExistsException(path.toString());
    }
  }

  private byte[] bytesOf(FileSystem system, Path path) throws IOException {
    byte[] found = new byte[(int) system.getFileStatus(path).getLen()];
    FSDataInputStream file = system.open(path);
    try {
      file.readFully(0L, found);
    } finally {
      file.close();
    }
    return found;
  }
}
