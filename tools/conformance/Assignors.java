// Assigns partitions to the members of a group with Kafka's assignors.

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

final class Assignors {
    private Assignors() {
    }

    /** Returns the partitions of each member, as lists of topic and partition. */
    static Object assignGroup(JsonNode query) throws IOException {
        ConsumerPartitionAssignor assignor = assignor(query.get("assignor").textValue());
        Map<String, Subscription> members = new HashMap<>();
        for (Iterator<Map.Entry<String, JsonNode>> rows = query.get("members").fields(); rows.hasNext();) {
            Map.Entry<String, JsonNode> row = rows.next();
            members.put(row.getKey(), subscription(row.getValue()));
        }
        Map<String, Assignment> assigned = assignor
            .assign(cluster(query.get("topics")), new GroupSubscription(members))
            .groupAssignment();
        Map<String, Object> result = new HashMap<>();
        for (Map.Entry<String, Assignment> row : assigned.entrySet()) {
            List<Object> partitions = new ArrayList<>();
            for (TopicPartition partition : row.getValue().partitions()) {
                partitions.add(List.of(partition.topic(), partition.partition()));
            }
            result.put(row.getKey(), partitions);
        }
        return result;
    }

    /** Returns the user data of a member after an assignment, null if there are none. */
    static Object userData(JsonNode query) throws IOException {
        ConsumerPartitionAssignor assignor = assignor(query.get("assignor").textValue());
        assignor.onAssignment(
            new Assignment(partitions(query.get("owned"))),
            new org.apache.kafka.clients.consumer.ConsumerGroupMetadata(
                "group", query.get("generation").intValue(), "member", Optional.empty()));
        ByteBuffer data = assignor.subscriptionUserData(Collections.emptySet());
        if (data == null) {
            return null;
        }
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        return bytes;
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range":
                return new RangeAssignor();
            case "roundrobin":
                return new RoundRobinAssignor();
            case "sticky":
                return new StickyAssignor();
            default:
                return new CooperativeStickyAssignor();
        }
    }

    private static Subscription subscription(JsonNode member) throws IOException {
        List<String> topics = new ArrayList<>();
        for (JsonNode topic : member.get("topics")) {
            topics.add(topic.textValue());
        }
        JsonNode data = member.get("user_data");
        Subscription subscription = new Subscription(
            topics,
            data.isNull() ? null : ByteBuffer.wrap(data.binaryValue()),
            partitions(member.get("owned")),
            member.get("generation").intValue(),
            Optional.ofNullable(member.get("rack").textValue()));
        subscription.setGroupInstanceId(Optional.ofNullable(member.get("instance").textValue()));
        return subscription;
    }

    private static List<TopicPartition> partitions(JsonNode rows) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (JsonNode row : rows) {
            partitions.add(new TopicPartition(row.get(0).textValue(), row.get(1).intValue()));
        }
        return partitions;
    }

    /** Returns a cluster whose topics have partitions with replicas in these racks. */
    private static Cluster cluster(JsonNode topics) {
        Map<String, Node> nodes = new HashMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        for (Iterator<Map.Entry<String, JsonNode>> rows = topics.fields(); rows.hasNext();) {
            Map.Entry<String, JsonNode> row = rows.next();
            int number = 0;
            for (JsonNode racks : row.getValue()) {
                List<Node> replicas = new ArrayList<>();
                for (JsonNode rack : racks) {
                    replicas.add(nodes.computeIfAbsent(
                        rack.textValue(), name -> new Node(nodes.size(), "host", 9092, name)));
                }
                Node[] all = replicas.toArray(new Node[0]);
                partitions.add(new PartitionInfo(row.getKey(), number++, null, all, all));
            }
        }
        return new Cluster(
            "cluster", nodes.values(), partitions, new HashSet<String>(), new HashSet<String>());
    }
}
