#include "protocol/export_info.hpp"

#include "tests/test.hpp"

namespace gpunbd::protocol::test {
namespace {

TEST_CASE("transmission flags") {
    struct Row {
        const char* name;
        bool read_only;
        Headers headers;
        unsigned flags;
    };
    // HAS 1, RO 2, FLUSH 4, FUA 8, TRIM 20, ZEROES 40, DF 80, MULTI 100, CACHE 400, FAST 800,
    // BLOCK_STATUS_PAYLOAD 1000.
    constexpr Row rows[] = {
        {"writable", false, Headers::simple, 0x0d6d},
        {"writable, structured", false, Headers::structured, 0x0ded},
        {"writable, extended", false, Headers::extended, 0x1ded},
        {"read-only", true, Headers::simple, 0x050f},
        {"read-only, structured", true, Headers::structured, 0x058f},
        {"read-only, extended", true, Headers::extended, 0x158f},
    };
    for (const Row& row : rows) {
        CAPTURE(row.name);
        CHECK(ExportInfo{.read_only = row.read_only}.transmission_flags(row.headers) == row.flags);
    }
}

TEST_CASE("block sizes are sent unrequested if they differ from the defaults") {
    CHECK(ExportInfo{}.default_block_sizes());
    CHECK(ExportInfo{.preferred_block = 65536}.default_block_sizes());
    CHECK(ExportInfo{.maximum_payload = 2 * max_payload}.default_block_sizes());
    CHECK_FALSE(ExportInfo{.minimum_block = 2}.default_block_sizes());
    CHECK_FALSE(ExportInfo{.maximum_payload = max_payload - 1}.default_block_sizes());
}

}  // namespace
}  // namespace gpunbd::protocol::test
