#include "server/nbd/all_workers.hpp"

#include "server/base/task_group.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

Task<> gather(Awaited<std::vector<int>> values, std::optional<std::vector<int>>* gathered) {
    *gathered = co_await values;
}

TEST_CASE("all workers: a coroutine gets one value of each") {
    boost::asio::io_context io;
    TaskGroup tasks(io);
    std::vector<std::unique_ptr<Worker>> workers;
    std::vector<std::function<void(int)>> asked;
    const auto ask = [&](Worker& /*worker*/, std::function<void(int)> done) {
        asked.push_back(std::move(done));
    };
    std::optional<std::vector<int>> gathered;
    SUBCASE("of several") {
        for (int i = 0; i != 2; ++i) {
            workers.push_back(std::make_unique<Worker>(storage::ChannelOptions(), 1 << 20, false));
        }
        tasks.start(gather(all_workers<int>(io, workers, ask), &gathered));
        REQUIRE(asked.size() == 2);
        std::thread([&] { asked[1](1); }).join();
        CHECK(io.poll() == 0);
        CHECK_FALSE(gathered.has_value());
        std::thread([&] { asked[0](2); }).join();
        io.restart();
        io.run();
        CHECK(gathered == std::vector{1, 2});
    }
    SUBCASE("of none") {
        tasks.start(gather(all_workers<int>(io, workers, ask), &gathered));
        io.run();
        CHECK(gathered == std::vector<int>());
    }
}

}  // namespace
}  // namespace gpunbd::server::test
