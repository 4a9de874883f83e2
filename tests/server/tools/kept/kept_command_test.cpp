// `gpunbd kept` with untrusted server replies.
#include "server/tools/kept/subcommand.hpp"

#include "tests/test.hpp"

namespace gpunbd::status {
namespace {

std::string table_of(const std::string& json) {
    const Expected<std::string, Failure> table = kept_table(json);
    if (!table) return "failed: " + table.error().text;
    return *table;
}

TEST_CASE("kept: a table of the known fields") {
    const std::string table = table_of(
        R"({"kept":[{"name":"a b","size":1073741824,"used":2097152,"devices":"host","made":0,
        "instance":"4c7f","state":"in use"},
        {"name":"4c7f0e0c6a5b","size":null,"used":null,"devices":null,"made":null,"instance":null,
        "state":"its checksum is wrong"}]})");
    CHECK(table.starts_with("EXPORT          SIZE   USED   DEVICES  SINCE "));
    CHECK(contains(table, "'a b'           1 GiB  2 MiB  host     19"));
    CHECK(contains(table, "'4c7f0e0c6a5b'  -      -      -        -  "));
    CHECK(contains(table, "its checksum is wrong\n"));
    CHECK(table_of(R"({"kept":[]})") == "no contents are kept\n");
}

TEST_CASE("kept: invalid replies, and texts with control characters") {
    for (const char* json : {"", "[]", "{}", R"({"kept":{}})", R"({"kept":[1]})", R"({"kept":)"}) {
        CAPTURE(json);
        CHECK(table_of(json).starts_with("failed: the reply is not a list"));
    }
    const std::string table = table_of(
        R"({"kept":[{"name":7,"size":-1,"used":1e300,"devices":"\u001b[2J","made":"x","state":[]}]})");
    CHECK(table.find('\x1b') == std::string::npos);
    CHECK(contains(table, "\n-  "));
}

}  // namespace
}  // namespace gpunbd::status
