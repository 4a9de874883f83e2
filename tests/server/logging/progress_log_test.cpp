#include "server/logging/log.hpp"

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

TEST_CASE("progress: the text and the bar") {
    struct Row {
        storage::LongWork::Progress work;
        const char* text;
        const char* bar;
    };
    constexpr std::uint64_t gib = std::uint64_t{1} << 30;
    for (const Row& row : {
             Row{{.what = "provisioning",
            .of = "cuda:0",
            .done = 16 * gib,
            .total = 64 * gib,
            .unit = "bytes",
            .began = {}},
                 "provisioning cuda:0: 16 GiB of 64 GiB (25%)",
                 " [#####---------------]"},
             Row{{.what = "draining",
             .of = "",
             .done = 0,
             .total = 3,
             .unit = "connections",
             .began = {}},
                 "draining: 0 connections of 3 connections (0%)",
                 " [--------------------]"},
             Row{{.what = "taking over",
             .of = "host",
             .done = 9,
             .total = 8,
             .unit = "bytes",
             .began = {}},
                 "taking over host: 8 bytes of 8 bytes (100%)",
                 " [####################]"},
             Row{{.what = "calibrating",
             .of = "cuda:1",
             .done = 0,
             .total = 0,
             .unit = "bytes",
             .began = {}},
                 "calibrating cuda:1",
                 ""},
         }) {
        CHECK(progress_text(row.work, false) == row.text);
        CHECK(progress_text(row.work, true) == std::string(row.text) + row.bar);
    }
}

}  // namespace
}  // namespace gpunbd::server::test
