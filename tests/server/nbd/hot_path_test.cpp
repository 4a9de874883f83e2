// Who swaps to an export waits for it where memory is short: once a worker is warm, no request of
// the kernel's client asks for any.
#include <doctest/doctest.h>

#include <new>
#include <vector>

#include "tests/server/failing_allocation.hpp"
#include "tests/server/rig.hpp"

namespace gpunbd::server::test {
namespace {

constexpr std::uint32_t swapped_page = 4 * kib;

// All that the kernel asks for, in all lengths, and all of it at once.
std::vector<Ask> what_swap_asks(std::uint64_t size) {
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

void ask_all(Client& client, const std::vector<Ask>& asks) {
    std::vector<std::uint64_t> cookies;
    cookies.reserve(asks.size());
    for (const Ask& ask : asks) cookies.push_back(client.send(ask));
    for (const std::uint64_t cookie : cookies) CHECK(client.answer(cookie).error == Error::none);
}

void check_no_allocations(std::string_view devices, bool structured) {
    CAPTURE(devices);
    CAPTURE(structured);
    constexpr int rounds = 50;
    Rig rig({.devices = devices, .size = 2 * mib, .provision = storage::Provision::full});
    Client client = rig.enter({.structured = structured});
    const std::vector<Ask> asks = what_swap_asks(rig.options.size);
    for (int i = 0; i != rounds; ++i) ask_all(client, asks);
    rig.on_worker([] { failing_allocation::take_part(); });
    failing_allocation::count();
    for (int i = 0; i != rounds; ++i) ask_all(client, asks);
    CHECK(failing_allocation::made() == 0);
    // It is the worker that is counted.
    rig.on_worker([] { ::operator delete(::operator new(1)); });
    CHECK(failing_allocation::made() != 0);
    failing_allocation::disarm();
}

TEST_CASE("hot path: once warm, no request allocates anything") {
    for (const bool structured : {false, true}) {
        check_no_allocations("h", structured);
        check_no_allocations("s", structured);
    }
}

}  // namespace
}  // namespace gpunbd::server::test
