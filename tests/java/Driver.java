import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The tests' own Java client: one JVM for many calls. Reads one JSON command a line from standard
 * input, answers one JSON line: {"ok": ...} or {"error": CLASS, "message": TEXT}.
 *
 * Every command names "bootstrap". Records are made from a seed, so a reader can check them.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int TIMEOUT_SECONDS = 120;

    private final Map<String, Admin> admins = new HashMap<>();
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        Driver driver = new Driver();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", driver.run(JSON.readTree(line)));
            } catch (Throwable problem) {
                Throwable cause = problem instanceof java.util.concurrent.ExecutionException && problem.getCause() != null
                        ? problem.getCause() : problem;
                answer.put("error", cause.getClass().getSimpleName());
                answer.put("message", String.valueOf(cause.getMessage()));
            }
            System.out.println(JSON.writeValueAsString(answer));
            System.out.flush();
        }
        System.exit(0);
    }

    private JsonNode run(JsonNode command) throws Exception {
        switch (command.get("do").asText()) {
            case "create_topic": return createTopic(command);
            case "add_partitions": return addPartitions(command);
            case "delete_topic": return deleteTopic(command);
            case "delete_records": return deleteRecords(command);
            case "alter_config": return alterConfig(command);
            case "describe_topic": return describeTopic(command);
            case "move_leader": return moveLeader(command);
            case "offsets": return offsets(command);
            case "produce": return produce(command);
            case "end_transaction": return endTransaction(command);
            case "close_producer": return closeProducer(command);
            case "consume": return consume(command);
            case "group_offsets": return groupOffsets(command);
            case "commit": return commit(command);
            case "offsets_for_time": return offsetsForTime(command);
            default: throw new IllegalArgumentException("unknown command " + command.get("do"));
        }
    }

    private Admin admin(JsonNode command) {
        return admins.computeIfAbsent(command.get("bootstrap").asText(), bootstrap -> {
            Properties properties = new Properties();
            properties.put("bootstrap.servers", bootstrap);
            properties.put("request.timeout.ms", "20000");
            properties.put("default.api.timeout.ms", "40000");
            return Admin.create(properties);
        });
    }

    private static String text(JsonNode command, String field, String fallback) {
        return command.hasNonNull(field) ? command.get(field).asText() : fallback;
    }

    private static long number(JsonNode command, String field, long fallback) {
        return command.hasNonNull(field) ? command.get(field).asLong() : fallback;
    }

    private static Map<String, String> strings(JsonNode node) {
        Map<String, String> result = new HashMap<>();
        if (node != null) {
            node.properties().forEach(entry -> result.put(entry.getKey(), entry.getValue().asText()));
        }
        return result;
    }

    private JsonNode createTopic(JsonNode command) throws Exception {
        NewTopic topic = new NewTopic(command.get("topic").asText(),
                Optional.of((int) number(command, "partitions", 1)),
                Optional.of((short) number(command, "replication", 1)));
        topic.configs(strings(command.get("config")));
        admin(command).createTopics(List.of(topic)).all().get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
        return JSON.nullNode();
    }

    private JsonNode addPartitions(JsonNode command) throws Exception {
        admin(command).createPartitions(Map.of(command.get("topic").asText(),
                NewPartitions.increaseTo(command.get("partitions").asInt()))).all().get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
        return JSON.nullNode();
    }

    private JsonNode deleteTopic(JsonNode command) throws Exception {
        admin(command).deleteTopics(List.of(command.get("topic").asText())).all().get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
        return JSON.nullNode();
    }

    private JsonNode deleteRecords(JsonNode command) throws Exception {
        admin(command).deleteRecords(Map.of(partition(command), RecordsToDelete.beforeOffset(command.get("before").asLong())))
                .all().get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
        return JSON.nullNode();
    }

    private JsonNode alterConfig(JsonNode command) throws Exception {
        List<AlterConfigOp> operations = new ArrayList<>();
        strings(command.get("config")).forEach((name, value) ->
                operations.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        ConfigResource.Type type = "broker".equals(text(command, "type", "topic"))
                ? ConfigResource.Type.BROKER : ConfigResource.Type.TOPIC;
        Map<ConfigResource, Collection<AlterConfigOp>> change =
                Map.of(new ConfigResource(type, command.get("topic").asText()), operations);
        admin(command).incrementalAlterConfigs(change).all().get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
        return JSON.nullNode();
    }

    private JsonNode describeTopic(JsonNode command) throws Exception {
        String name = command.get("topic").asText();
        TopicDescription topic = admin(command).describeTopics(List.of(name)).allTopicNames()
                .get(TIMEOUT_SECONDS, TimeUnit.SECONDS).get(name);
        ObjectNode result = JSON.createObjectNode();
        result.put("id", topic.topicId().toString());
        ArrayNode leaders = result.putArray("leaders");
        for (TopicPartitionInfo info : topic.partitions()) {
            leaders.add(info.leader() == null ? -1 : info.leader().id());
        }
        return result;
    }

    /** Puts "leader" first among the replicas and elects it. */
    private JsonNode moveLeader(JsonNode command) throws Exception {
        TopicPartition moved = partition(command);
        int leader = command.get("leader").asInt();
        TopicPartitionInfo info = admin(command).describeTopics(List.of(moved.topic())).allTopicNames()
                .get(TIMEOUT_SECONDS, TimeUnit.SECONDS).get(moved.topic()).partitions().get(moved.partition());
        List<Integer> replicas = new ArrayList<>(List.of(leader));
        info.replicas().forEach(node -> {
            if (node.id() != leader) {
                replicas.add(node.id());
            }
        });
        if (!info.replicas().stream().anyMatch(node -> node.id() == leader)) {
            replicas.remove(replicas.size() - 1);
        }
        admin(command).alterPartitionReassignments(Map.of(moved, Optional.of(new NewPartitionReassignment(replicas))))
                .all().get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
        for (int round = 0; round < 300; round++) {
            if (admin(command).listPartitionReassignments(Set.of(moved)).reassignments()
                    .get(TIMEOUT_SECONDS, TimeUnit.SECONDS).isEmpty()) {
                break;
            }
            Thread.sleep(100);
        }
        // A replica that has just come back is not in the in-sync set yet, and brokers learn of an
        // election one after the other.
        for (int round = 0; round < 300; round++) {
            try {
                admin(command).electLeaders(ElectionType.PREFERRED, Set.of(moved)).all().get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
            } catch (java.util.concurrent.ExecutionException problem) {
                if (!(problem.getCause() instanceof org.apache.kafka.common.errors.ElectionNotNeededException)
                        && !(problem.getCause()
                                instanceof org.apache.kafka.common.errors.PreferredLeaderNotAvailableException)) {
                    throw problem;
                }
            }
            org.apache.kafka.common.Node now = admin(command).describeTopics(List.of(moved.topic())).allTopicNames()
                    .get(TIMEOUT_SECONDS, TimeUnit.SECONDS).get(moved.topic()).partitions().get(moved.partition()).leader();
            if (now != null && now.id() == leader) {
                return JSON.nullNode();
            }
            Thread.sleep(100);
        }
        throw new IllegalStateException(moved + " does not get broker " + leader + " as leader");
    }

    private static TopicPartition partition(JsonNode command) {
        return new TopicPartition(command.get("topic").asText(), (int) number(command, "partition", 0));
    }

    private JsonNode offsets(JsonNode command) throws Exception {
        TopicPartition asked = partition(command);
        ObjectNode result = JSON.createObjectNode();
        result.put("earliest", admin(command).listOffsets(Map.of(asked, OffsetSpec.earliest())).all()
                .get(TIMEOUT_SECONDS, TimeUnit.SECONDS).get(asked).offset());
        result.put("latest", admin(command).listOffsets(Map.of(asked, OffsetSpec.latest())).all()
                .get(TIMEOUT_SECONDS, TimeUnit.SECONDS).get(asked).offset());
        result.put("max_timestamp", admin(command).listOffsets(Map.of(asked, OffsetSpec.maxTimestamp())).all()
                .get(TIMEOUT_SECONDS, TimeUnit.SECONDS).get(asked).offset());
        return result;
    }

    private JsonNode offsetsForTime(JsonNode command) throws Exception {
        TopicPartition asked = partition(command);
        return JSON.getNodeFactory().numberNode(admin(command)
                .listOffsets(Map.of(asked, OffsetSpec.forTimestamp(command.get("timestamp").asLong()))).all()
                .get(TIMEOUT_SECONDS, TimeUnit.SECONDS).get(asked).offset());
    }

    private KafkaProducer<byte[], byte[]> producer(JsonNode command) {
        String name = text(command, "producer", "");
        if (!name.isEmpty() && producers.containsKey(name)) {
            return producers.get(name);
        }
        Properties properties = new Properties();
        properties.put("bootstrap.servers", command.get("bootstrap").asText());
        properties.put("key.serializer", ByteArraySerializer.class);
        properties.put("value.serializer", ByteArraySerializer.class);
        properties.put("compression.type", text(command, "compression", "none"));
        properties.put("max.block.ms", "20000");
        // A plain idempotent producer of 4.4 sometimes starts its sequence again on a topic made a moment
        // ago, and is then refused for good. One request at a time keeps the order without it.
        properties.put("enable.idempotence", String.valueOf(command.hasNonNull("transactional_id")));
        properties.put("max.in.flight.requests.per.connection", "1");
        properties.put("delivery.timeout.ms", text(command, "delivery_timeout_ms", "120000"));
        properties.put("request.timeout.ms", "10000");
        properties.put("linger.ms", text(command, "linger_ms", "5"));
        properties.put("batch.size", text(command, "batch_bytes", "16384"));
        properties.put("buffer.memory", String.valueOf(128 << 20));
        properties.put("max.request.size", String.valueOf(64 << 20));
        if (command.hasNonNull("transactional_id")) {
            properties.put("transactional.id", command.get("transactional_id").asText());
        }
        properties.putAll(strings(command.get("config")));
        KafkaProducer<byte[], byte[]> made = new KafkaProducer<>(properties);
        if (command.hasNonNull("transactional_id")) {
            made.initTransactions();
        }
        if (!name.isEmpty()) {
            producers.put(name, made);
        }
        return made;
    }

    /**
     * Writes "count" records of "size" bytes to one partition, with "partitions" to that many in turn or,
     * with partition -1, to all by key.
     * "transaction": begin (and leave open), commit or abort. Without "producer" the producer is closed at the end.
     */
    private JsonNode produce(JsonNode command) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(command);
        String transaction = text(command, "transaction", "");
        if (!transaction.isEmpty() && !command.path("continue").asBoolean()) {
            producer.beginTransaction();
        }
        long first = number(command, "first", 0);
        long count = number(command, "count", 1);
        int partition = (int) number(command, "partition", 0);
        long keys = number(command, "keys", 0);
        long partitions = number(command, "partitions", 0);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (long index = first; index < first + count; index++) {
            byte[] key = keys > 0 ? ("key-" + index % keys).getBytes(StandardCharsets.UTF_8) : null;
            byte[] value = command.path("tombstones").asBoolean() ? null : value(command, index);
            Long timestamp = command.hasNonNull("timestamp") ? command.get("timestamp").asLong() + index : null;
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(command.get("topic").asText(),
                    partitions > 0 ? (Integer) (int) (index % partitions) : partition < 0 ? null : partition,
                    timestamp, key, value);
            if (command.path("null_header").asBoolean()) {
                record.headers().add("empty", null).add("same", new byte[] {1}).add("same", new byte[] {2});
            }
            sent.add(producer.send(record));
        }
        producer.flush();
        long last = -1;
        for (Future<RecordMetadata> future : sent) {
            last = Math.max(last, future.get(TIMEOUT_SECONDS, TimeUnit.SECONDS).offset());
        }
        if (transaction.equals("commit")) {
            producer.commitTransaction();
        } else if (transaction.equals("abort")) {
            producer.abortTransaction();
        }
        if (text(command, "producer", "").isEmpty()) {
            producer.close(Duration.ofSeconds(5));
        }
        ObjectNode result = JSON.createObjectNode();
        result.put("last_offset", last);
        return result;
    }

    /** Bytes that depend on the seed and the record's number only; half of them compress well. */
    private static byte[] value(JsonNode command, long index) {
        int size = (int) number(command, "size", 100);
        byte[] value = new byte[size];
        byte[] front = ("record-" + index + "-").getBytes(StandardCharsets.UTF_8);
        new Random(number(command, "seed", 1) * 1_000_003 + index).nextBytes(value);
        java.util.Arrays.fill(value, size / 2, size, (byte) 'x');
        System.arraycopy(front, 0, value, 0, Math.min(front.length, size));
        return value;
    }

    private JsonNode endTransaction(JsonNode command) {
        KafkaProducer<byte[], byte[]> producer = producers.get(command.get("producer").asText());
        if (command.get("commit").asBoolean()) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
        return JSON.nullNode();
    }

    private JsonNode closeProducer(JsonNode command) {
        producers.remove(command.get("producer").asText()).close(Duration.ZERO);
        return JSON.nullNode();
    }

    private KafkaConsumer<byte[], byte[]> consumer(JsonNode command) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", command.get("bootstrap").asText());
        properties.put("key.deserializer", ByteArrayDeserializer.class);
        properties.put("value.deserializer", ByteArrayDeserializer.class);
        properties.put("auto.offset.reset", text(command, "reset", "earliest"));
        properties.put("enable.auto.commit", "false");
        properties.put("isolation.level", text(command, "isolation", "read_uncommitted"));
        properties.put("default.api.timeout.ms", "20000");
        if (command.hasNonNull("group")) {
            properties.put("group.id", command.get("group").asText());
        }
        properties.putAll(strings(command.get("config")));
        return new KafkaConsumer<>(properties);
    }

    /**
     * Reads up to "max" records within "timeout_ms": from all partitions of the topic, from "from"
     * on one "partition", or as a member of "group". Answers counts, offsets and a digest over
     * offset, timestamp, key, value and headers, in the order of each partition.
     */
    private JsonNode consume(JsonNode command) throws Exception {
        long max = number(command, "max", Long.MAX_VALUE);
        long deadline = System.currentTimeMillis() + number(command, "timeout_ms", 20000);
        Map<Integer, MessageDigest> digests = new java.util.TreeMap<>();
        Map<Integer, Long> firsts = new java.util.TreeMap<>();
        Map<Integer, Long> nexts = new java.util.TreeMap<>();
        ArrayNode offsets = JSON.createArrayNode();
        long count = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(command)) {
            subscribe(consumer, command);
            while (count < max && System.currentTimeMillis() < deadline) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    if (count >= max) {
                        break;
                    }
                    count++;
                    if (count <= 10_000) {
                        offsets.add(record.offset());
                    }
                    firsts.putIfAbsent(record.partition(), record.offset());
                    nexts.put(record.partition(), record.offset() + 1);
                    digest(digests.computeIfAbsent(record.partition(), ignored -> sha()), record);
                }
            }
            if (command.path("commit").asBoolean()) {
                Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
                nexts.forEach((partition, next) -> positions.put(
                        new TopicPartition(command.get("topic").asText(), partition), new OffsetAndMetadata(next)));
                consumer.commitSync(positions);
            }
        }
        ObjectNode result = JSON.createObjectNode();
        result.put("count", count);
        result.set("offsets", offsets);
        result.set("first", JSON.valueToTree(firsts));
        result.set("next", JSON.valueToTree(nexts));
        ObjectNode hex = result.putObject("digest");
        digests.forEach((partition, digest) -> hex.put(String.valueOf(partition),
                String.format("%064x", new java.math.BigInteger(1, digest.digest()))));
        return result;
    }

    private void subscribe(KafkaConsumer<byte[], byte[]> consumer, JsonNode command) {
        String topic = command.get("topic").asText();
        if (command.hasNonNull("group")) {
            consumer.subscribe(List.of(topic));
            return;
        }
        List<TopicPartition> assigned = new ArrayList<>();
        if (command.hasNonNull("partition")) {
            assigned.add(partition(command));
        } else {
            consumer.partitionsFor(topic).forEach(info -> assigned.add(new TopicPartition(topic, info.partition())));
        }
        consumer.assign(assigned);
        if (command.hasNonNull("from")) {
            assigned.forEach(one -> consumer.seek(one, command.get("from").asLong()));
        } else {
            consumer.seekToBeginning(assigned);
        }
    }

    private static MessageDigest sha() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (java.security.NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static void digest(MessageDigest digest, ConsumerRecord<byte[], byte[]> record) {
        digest.update(ByteBuffer.allocate(16).putLong(record.offset()).putLong(record.timestamp()).array());
        if (record.key() != null) {
            digest.update(record.key());
        }
        digest.update((byte) 0);
        if (record.value() != null) {
            digest.update(record.value());
        }
        for (Header header : record.headers()) {
            digest.update(header.key().getBytes(StandardCharsets.UTF_8));
            if (header.value() != null) {
                digest.update(header.value());
            }
        }
    }

    private JsonNode groupOffsets(JsonNode command) throws Exception {
        ObjectNode result = JSON.createObjectNode();
        admin(command).listConsumerGroupOffsets(command.get("group").asText()).partitionsToOffsetAndMetadata()
                .get(TIMEOUT_SECONDS, TimeUnit.SECONDS)
                .forEach((partition, position) -> result.put(partition.toString(), position.offset()));
        return result;
    }

    private JsonNode commit(JsonNode command) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(command)) {
            consumer.commitSync(Map.of(partition(command), new OffsetAndMetadata(
                    command.get("offset").asLong(), text(command, "metadata", ""))));
        }
        return JSON.nullNode();
    }
}
