// A kernel that swaps to an export waits for it while memory is short. So, once a worker is warm,
// none of the requests that swap sends may allocate memory.
#include <new>

#include "tests/server/failing_allocation.hpp"
#include "tests/server/rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

constexpr std::uint32_t swapped_page = 4 * kib;
constexpr std::size_t socket_fillers = 4;

// Requests of every type and length that swap sends.
std::vector<Ask> swap_requests(std::uint64_t size) {
    std::vector<Ask> asks;
    std::uint32_t seed = 0;
    for (std::uint64_t length = swapped_page; length <= size / 2; length *= 2) {
        for (const std::uint64_t offset : {std::uint64_t{0}, size / 2}) {
            asks.push_back({CommandType::write, offset, length, 0, ++seed});
            asks.push_back({CommandType::read, offset, length});
            asks.push_back({CommandType::trim, offset, length});
            asks.push_back({CommandType::write, offset, length, 0, ++seed});
        }
    }
    asks.push_back({CommandType::flush, 0, 0});
    asks.push_back({CommandType::write_zeroes, 0, size / 4});
    return asks;
}

// Sends all requests before it reads a reply. `sent` is called in between.
void ask_all(Client& client, const std::vector<Ask>& asks, const auto& sent) {
    std::vector<std::uint64_t> cookies;
    cookies.reserve(asks.size());
    for (const Ask& ask : asks) cookies.push_back(client.send(ask));
    sent();
    for (const std::uint64_t cookie : cookies) CHECK(client.answer(cookie).error == Error::none);
}

void check_no_allocations(std::string_view devices, bool structured) {
    CAPTURE(devices);
    CAPTURE(structured);
    constexpr int rounds = 25;
    constexpr int max_batches = 5;
    Rig rig({.devices = devices, .size = 2 * mib, .provision = storage::Provision::full});
    Client client = rig.enter({.structured = structured});
    const std::vector<Ask> asks = swap_requests(rig.options.size);
    // The pools grow with the number of unanswered requests. The replies to the first reads fill
    // the socket, so that every other request of the warm-up is unanswered at the same time.
    std::vector<Ask> unanswered(socket_fillers, {CommandType::read, 0, rig.options.size});
    unanswered.insert(unanswered.end(), asks.begin(), asks.end());
    ask_all(client, unanswered, [&] { rig.settle(); });
    rig.on_worker([] { failing_allocation::take_part(); });
    // On a busy machine the threads may be scheduled in a new way late, and a pool grows once more.
    // What allocates for each request does so in each batch.
    int batches = 0;
    do {
        failing_allocation::count();
        for (int i = 0; i != rounds; ++i) ask_all(client, asks, [] {});
    } while (failing_allocation::made() != 0 && ++batches != max_batches);
    CHECK(failing_allocation::made() == 0);
    // The count is that of the worker.
    rig.on_worker([] { ::operator delete(::operator new(1)); });
    CHECK(failing_allocation::made() != 0);
    failing_allocation::disarm();
}

TEST_CASE("hot path: after the warm-up, no request allocates memory") {
    for (const bool structured : {false, true}) {
        check_no_allocations("h", structured);
        check_no_allocations("s", structured);
    }
}

}  // namespace
}  // namespace gpunbd::server::test
