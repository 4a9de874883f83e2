#include "protocol/export_info.hpp"

#include <doctest/doctest.h>

namespace gpunbd::protocol::test {
namespace {

TEST_CASE("transmission flags") {
    struct Row {
        const char* name;
        bool read_only;
        bool structured;
        unsigned flags;
    };
    // HAS 1, RO 2, FLUSH 4, FUA 8, TRIM 20, ZEROES 40, DF 80, MULTI 100, CACHE 400, FAST 800.
    constexpr Row rows[] = {
        {"writable", false, false, 0x0d6d},
        {"writable, structured", false, true, 0x0ded},
        {"read-only", true, false, 0x050f},
        {"read-only, structured", true, true, 0x058f},
    };
    for (const Row& row : rows) {
        CAPTURE(row.name);
        CHECK(ExportInfo{.read_only = row.read_only}.transmission_flags(row.structured) ==
              row.flags);
    }
}

TEST_CASE("which block sizes must be told unasked") {
    CHECK(ExportInfo{}.default_block_sizes());
    CHECK(ExportInfo{.preferred_block = 65536}.default_block_sizes());
    CHECK(ExportInfo{.maximum_payload = 2 * max_payload}.default_block_sizes());
    CHECK_FALSE(ExportInfo{.minimum_block = 2}.default_block_sizes());
    CHECK_FALSE(ExportInfo{.maximum_payload = max_payload - 1}.default_block_sizes());
}

}  // namespace
}  // namespace gpunbd::protocol::test
