#include "server/counters/longest_requests.hpp"

#include <numeric>

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using namespace std::chrono_literals;
using Time = LongestRequests::Clock::time_point;

constexpr Time start = Time(1000s);

storage::TransferWaits waits(Time began) {
    storage::TransferWaits out;
    out.begin(began);
    return out;
}

std::uint32_t wait_of(const LongRequest& request, WaitStage stage) {
    return request.waits.at(static_cast<std::size_t>(stage));
}

TEST_CASE("longest requests: that of each second of the last minute") {
    LongestRequests requests;
    CHECK(requests.longest(start, 0, 59).duration == 0);
    const auto add = [&](Time now, LongestRequests::Clock::duration took) {
        requests.add(1, now - took, waits(now - took), now);
    };
    add(start + 100ms, 5ms);
    add(start + 200ms, 9ms);
    add(start + 300ms, 7ms);
    add(start + 1s, 2ms);
    CHECK(requests.longest(start + 1s, 0, 0).duration == 2000);
    CHECK(requests.longest(start + 1s, 0, 1).duration == 9000);
    CHECK(requests.longest(start + 1s, 1, 1).duration == 9000);
    CHECK(requests.longest(start + 59s, 0, 59).duration == 9000);
    CHECK(requests.longest(start + 59s, 0, 59).age == 59);
    CHECK(requests.longest(start + 60s, 0, 59).duration == 2000);
    CHECK(requests.longest(start + 61s, 0, 59).duration == 0);
    add(start + 200s, 1ms);  // in place of an older one
    CHECK(requests.longest(start + 200s, 0, 59).duration == 1000);
}

TEST_CASE("longest requests: the waits add up to the duration") {
    const Time received = start;
    storage::TransferWaits all = waits(received + 1ms);
    all.end(&storage::TransferWaits::memory, received + 3ms);
    all.payload_complete(received + 6ms);
    all.end(&storage::TransferWaits::device, received + 10ms);
    all.end(&storage::TransferWaits::socket, received + 15ms);
    LongestRequests requests;
    requests.add(7, received, all, received + 21ms);
    LongRequest longest = requests.longest(start, 0, 0);
    CHECK(longest.type == 7);
    CHECK(longest.duration == 21000);
    CHECK(longest.waits == decltype(longest.waits){1000, 3000, 2000, 4000, 5000, 6000});
    // The stages are measured less exactly.
    requests.add(7, received, all, start + 1s);
    requests.add(7, start + 1s, all, start + 2s);
    longest = requests.longest(start + 2s, 0, 0);
    CHECK(std::accumulate(longest.waits.begin(), longest.waits.end(), 0U) == longest.duration);
    CHECK(wait_of(longest, WaitStage::queue) == 0);
}

TEST_CASE("longest requests: a reader never sees parts of two requests") {
    LongestRequests requests;
    std::atomic<bool> done{false};
    std::thread writer([&] {
        for (std::uint32_t i = 1; i != 100'000; ++i) {
            const Time now = start + i * 1us;
            storage::TransferWaits all = waits(now - i * 1us);
            all.end(&storage::TransferWaits::device, now);
            requests.add(i, now - i * 1us, all, now);
        }
        done = true;
    });
    std::uint32_t torn = 0;
    while (!done) {
        const LongRequest seen = requests.longest(start, 0, 0);
        torn += seen.type != seen.duration || wait_of(seen, WaitStage::device) != seen.duration;
    }
    writer.join();
    CHECK(torn == 0);
    CHECK(requests.longest(start, 0, 0).duration == 99'999);
}

}  // namespace
}  // namespace gpunbd::server::test
