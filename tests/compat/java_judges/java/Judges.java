import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * Answers each line of stdin, {"judge": the class of a judge, "given": a case}, by a line on stdout: {"taken": what it
 * is taken for}, or {"refused": why}. Ends with stdin.
 */
public final class Judges {
    public static void main(String[] arguments) throws Exception {
        // Half a character is a text in Java and in Python, and no UTF-8.
        JsonMapper json = JsonMapper.builder().enable(JsonWriteFeature.ESCAPE_NON_ASCII).build();
        PrintStream answers = System.out;
        System.setOut(System.err);
        Map<String, Judge> judges = new HashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode asked = json.readTree(line);
            String name = asked.get("judge").asText();
            if (!judges.containsKey(name)) {
                judges.put(name, (Judge) Class.forName(name).getDeclaredConstructor().newInstance());
            }
            answers.println(json.writeValueAsString(verdict(judges.get(name), asked.get("given"))));
            answers.flush();
        }
    }

    private static Map<String, Object> verdict(Judge judge, JsonNode given) {
        Map<String, Object> verdict = new HashMap<>();
        try {
            verdict.put("taken", judge.judge(given));
        } catch (Exception error) {
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            verdict.put("refused", cause.toString());
        }
        return verdict;
    }
}
