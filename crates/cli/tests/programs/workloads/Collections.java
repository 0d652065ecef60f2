import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.IntStream;

/** Builds and replaces entries of large collections; prints a number that all have a part in. */
class Collections {
    public static void main(String[] arguments) {
        int items = Integer.parseInt(arguments[0]);
        Map<Integer, String> texts = new HashMap<>();
        TreeMap<Long, List<Integer>> sorted = new TreeMap<>();
        long sum = 0;
        for (int round = 0; round < 4; round++) {
            for (int i = 0; i < items; i++) {
                int key = (int) ((i * 7919L + round) % items);
                texts.put(key, "entry " + key + " of round " + round);
                sorted.computeIfAbsent(key * 31L % 4099, k -> new ArrayList<>()).add(i);
            }
            if (round % 2 == 0) {
                sorted.values().forEach(list -> list.removeIf(i -> i % 3 == 0));
            }
            sum += IntStream.range(0, items).parallel()
                .mapToLong(i -> texts.getOrDefault(i, "").hashCode()).sum();
        }
        for (Map.Entry<Long, List<Integer>> entry : sorted.entrySet()) {
            sum = sum * 31 + entry.getKey() + entry.getValue().hashCode();
        }
        System.out.println(sum + " " + texts.size() + " " + sorted.size());
    }
}
