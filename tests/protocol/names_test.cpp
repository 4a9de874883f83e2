#include "protocol/constants.hpp"

#include "tests/test.hpp"

namespace gpunbd::protocol::test {
namespace {

// The names of the specification and of <errno.h>.
TEST_CASE("commands and errors have the names of the specification") {
    constexpr const char* commands[] = {"READ", "WRITE", "DISC",         "FLUSH",
                                        "TRIM", "CACHE", "WRITE_ZEROES", "BLOCK_STATUS"};
    for (std::uint16_t type = 0; type != std::size(commands); ++type) {
        CHECK(name_of(static_cast<CommandType>(type)) == commands[type]);
    }
    struct Row {
        std::uint32_t error;
        const char* name;
    };
    constexpr Row errors[] = {{1, "EPERM"},    {5, "EIO"},        {12, "ENOMEM"},
                              {22, "EINVAL"},  {28, "ENOSPC"},    {75, "EOVERFLOW"},
                              {95, "ENOTSUP"}, {108, "ESHUTDOWN"}};
    for (const Row& row : errors) CHECK(name_of(static_cast<Error>(row.error)) == row.name);
}

}  // namespace
}  // namespace gpunbd::protocol::test
