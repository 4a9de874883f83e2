#include "server/nbd/failure_log.hpp"

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

TEST_CASE("wire error: each storage status maps to an NBD error") {
    const std::pair<storage::Status, std::uint32_t> rows[] = {
        {storage::Status::ok, 0},
        {storage::Status::no_space, 28},
        {storage::Status::io_error, 5},
        {static_cast<storage::Status>(200), 5},  // not ENOMEM
    };
    for (const auto& [status, error] : rows) {
        CHECK(static_cast<std::uint32_t>(wire_error(status)) == error);
        CHECK(wire_text(status).empty() == (error == 0));
    }
}

}  // namespace
}  // namespace gpunbd::server::test
