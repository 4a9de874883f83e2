#include "server/net/transport/pool.hpp"

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

TEST_CASE("pool: objects keep their addresses and are reused") {
    Pool<std::string> pool(100);
    std::vector<std::string*> taken;
    for (int i = 0; i != 100; ++i) {
        taken.push_back(&pool.take());
        *taken.back() = std::to_string(i);
    }
    for (int i = 0; i != 100; ++i) CHECK(*taken[static_cast<std::size_t>(i)] == std::to_string(i));
    for (std::string* each : taken) pool.give_back(*each);
    for (int i = 0; i != 100; ++i) {
        CHECK(std::find(taken.begin(), taken.end(), &pool.take()) != taken.end());
    }
    CHECK(pool.size() == 100);
    CHECK(std::find(taken.begin(), taken.end(), &pool.take()) == taken.end());
}

TEST_CASE("pool: objects of a burst are freed, and the others are unchanged") {
    Pool<std::string> pool(3);
    std::vector<std::string*> taken;
    for (int i = 0; i != 50; ++i) {
        taken.push_back(&pool.take());
        *taken.back() = std::to_string(i);
    }
    for (int i = 0; i != 50; i += 2) pool.give_back(*taken[static_cast<std::size_t>(i)]);
    CHECK(pool.size() == 25 + 3);
    for (int i = 1; i < 50; i += 2) CHECK(*taken[static_cast<std::size_t>(i)] == std::to_string(i));
    for (int i = 1; i < 50; i += 2) pool.give_back(*taken[static_cast<std::size_t>(i)]);
    CHECK(pool.size() == 3);
}

}  // namespace
}  // namespace gpunbd::server::test
