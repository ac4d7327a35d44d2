import com.fasterxml.jackson.databind.JsonNode;

/** What Java makes of a case. */
interface Judge {
    /** @return what it is taken for, in types of JSON; an exception says that it is refused. */
    Object judge(JsonNode given) throws Exception;
}
