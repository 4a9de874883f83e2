// A stream of the administrative interface owns its client's socket from the first moment.
#include "server/admin/http/stream.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <new>

#include "tests/server/failing_allocation.hpp"
#include "tests/storage/open_files.hpp"

namespace gpunbd::server::test {
namespace {

TEST_CASE("stream: making one fails at each allocation, and leaks no descriptor") {
    failing_allocation::take_part();
    bool failed = true;
    for (std::int64_t number = 1; failed; ++number) {
        CAPTURE(number);
        const std::size_t files = storage::test::open_files();
        std::array<int, 2> both{};
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both.data()) == 0);
        {
            const OwnedFd theirs(both[0]);
            OwnedFd ours(both[1]);
            boost::asio::io_context io;
            failing_allocation::arm(number);
            try {
                std::make_shared<admin::Stream>(io, std::move(ours), nullptr);
            } catch (const std::bad_alloc&) {
            }
            failed = failing_allocation::disarm();
        }
        CHECK(storage::test::open_files() == files);
    }
}

}  // namespace
}  // namespace gpunbd::server::test
