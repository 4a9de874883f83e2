#include "server/nbd/failure_log.hpp"

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

TEST_CASE("wire error: each storage status maps to an NBD error") {
    constexpr struct {
        storage::Status status;
        std::uint32_t error;
    } rows[] = {
        {storage::Status::ok, 0},
        {storage::Status::no_space, 28},
        {storage::Status::io_error, 5},
        {static_cast<storage::Status>(200), 5},  // not ENOMEM
    };
    for (const auto& row : rows) {
        CHECK(static_cast<std::uint32_t>(wire_error(row.status)) == row.error);
        CHECK(wire_text(row.status).empty() == (row.error == 0));
    }
}

}  // namespace
}  // namespace gpunbd::server::test
