// Writes kafka-batches.txt: batches made by Kafka's own client library in every format and codec,
// each with the records that the same library reads back from it. Run it with kafka-clients 3.9.2
// (the last line that still writes formats 0 and 1) and its codec libraries on the class path:
//
//   java -cp 'lib/*' KafkaBatches.java > kafka-batches.txt

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.TimestampType;

public class KafkaBatches {
    static final Header[] NO_HEADERS = {};

    public static void main(String[] arguments) {
        for (CompressionType codec : CompressionType.values()) {
            for (byte magic = 0; magic <= 2; magic++) {
                if (codec == CompressionType.ZSTD && magic < 2) continue;
                // Kafka writes this pair with a frame checksum that no other LZ4 reader accepts.
                if (codec == CompressionType.LZ4 && magic == 0) continue;
                MemoryRecordsBuilder builder =
                    builder(magic, codec, TimestampType.CREATE_TIME, -1L);
                for (int index = 0; index < 5; index++) {
                    builder.appendWithOffset(1000 + index * (magic == 2 ? 2 : 1),
                        magic == 0 ? -1L : 1_700_000_000_000L + (index * 7 % 5),
                        index == 3 ? null : bytes("key-" + index),
                        index == 2 ? null : bytes("value of record " + index + " ".repeat(40)), NO_HEADERS);
                }
                print("v" + magic + "-" + codec.name, builder.build());
            }
        }
        for (byte magic = 1; magic <= 2; magic++) {
            MemoryRecordsBuilder builder =
                builder(magic, CompressionType.GZIP, TimestampType.LOG_APPEND_TIME, 1_800_000_000_000L);
            for (int index = 0; index < 3; index++)
                builder.append(5L + index, bytes("k"), bytes("v" + index));
            print("v" + magic + "-append-time", builder.build());
        }
        MemoryRecordsBuilder far = builder((byte) 2, CompressionType.NONE, TimestampType.CREATE_TIME, -1L);
        far.append(0L, bytes("then"), bytes("0"));
        far.append(1_760_000_000_000L, bytes("now"), bytes("1"), new Header[] {
            new RecordHeader("null", (byte[]) null), new RecordHeader("twice", bytes("a")),
            new RecordHeader("twice", bytes("b")), new RecordHeader("empty", new byte[0])});
        print("v2-far-timestamps-and-headers", far.build());
        MemoryRecordsBuilder transactional = MemoryRecords.builder(ByteBuffer.allocate(1024), (byte) 2,
            Compression.NONE, TimestampType.CREATE_TIME, 1000L, -1L, 4711L, (short) 3, 17, true, 9);
        transactional.append(77L, bytes("k"), bytes("in a transaction"));
        print("v2-transactional", transactional.build());
        for (ControlRecordType type : new ControlRecordType[] {ControlRecordType.ABORT, ControlRecordType.COMMIT})
            print("v2-" + type.name().toLowerCase(), MemoryRecords.withEndTransactionMarker(
                1001L, 78L, 9, 4711L, (short) 3, new EndTransactionMarker(type, 6)));
    }

    static MemoryRecordsBuilder builder(byte magic, CompressionType codec, TimestampType time, long appendTime) {
        return MemoryRecords.builder(ByteBuffer.allocate(4096), magic, Compression.of(codec).build(), time, 1000L,
            appendTime);
    }

    static void print(String name, MemoryRecords records) {
        ByteBuffer buffer = records.buffer().duplicate();
        byte[] batch = new byte[buffer.remaining()];
        buffer.get(batch);
        System.out.println("batch " + name + " " + HexFormat.of().formatHex(batch));
        for (Record record : records.records()) {
            StringBuilder line = new StringBuilder("record " + record.offset() + " " + record.timestamp() + " "
                + hex(record.key()) + " " + hex(record.value()));
            for (Header header : record.headers())
                line.append(" ").append(header.key()).append("=").append(
                    header.value() == null ? "null" : HexFormat.of().formatHex(header.value()));
            System.out.println(line);
        }
    }

    static String hex(ByteBuffer value) {
        if (value == null) return "null";
        byte[] copy = new byte[value.remaining()];
        value.duplicate().get(copy);
        return "x" + HexFormat.of().formatHex(copy);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
