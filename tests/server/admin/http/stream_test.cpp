// A stream of the administrative interface owns its client's socket from the first moment.
#include "server/admin/http/stream.hpp"

#include <boost/asio/io_context.hpp>

#include "tests/server/failing_allocation.hpp"
#include "tests/socket_pairs.hpp"
#include "tests/storage/open_files.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

TEST_CASE("stream: making one fails at each allocation, and leaks no descriptor") {
    failing_allocation::in_turn({1}, [](const auto& fails) {
        const std::size_t files = storage::test::open_files();
        {
            const auto both = gpunbd::test::unix_pair();
            const OwnedFd theirs(both.first);
            OwnedFd ours(both.second);
            boost::asio::io_context io;
            fails([&] { std::make_shared<admin::Stream>(io, std::move(ours), nullptr); });
        }
        CHECK(storage::test::open_files() == files);
    });
}

}  // namespace
}  // namespace gpunbd::server::test
