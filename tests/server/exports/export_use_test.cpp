// Connection leases and rates of an export: exact, with many threads, and across reloads.
#include "server/exports/export_use.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace gpunbd::server::test {
namespace {

using Places = std::vector<std::unique_ptr<ExportUse::Lease>>;

config::ExportOptions at_most(std::optional<std::uint32_t> all,
                              std::optional<std::uint32_t> per_peer = std::nullopt) {
    config::ExportOptions options;
    options.max_connections = all;
    options.max_connections_per_peer = per_peer;
    return options;
}

// Takes up to `wanted` leases.
Places enter(ExportUse& use, const std::string& peer, std::size_t wanted, std::string& refusal) {
    Places places;
    while (places.size() != wanted) {
        ExportUse::Answer answer = use.enter(peer);
        CHECK((answer.lease == nullptr) == !answer.refusal.empty());
        refusal = answer.refusal;
        if (!answer.lease) break;
        places.push_back(std::move(answer.lease));
    }
    return places;
}

TEST_CASE("export use: limits connections in total and per peer, and reuses freed leases") {
    const auto use = std::make_shared<ExportUse>();
    std::string refusal;
    {
        const Places no_limit = enter(*use, "a", 5000, refusal);
        CHECK(no_limit.size() == 5000);
    }
    use->apply(at_most(5, 3));
    Places a = enter(*use, "a", 9, refusal);
    CHECK(a.size() == 3);
    CHECK(refusal == "this client has 3 connections to the export, which is its limit");
    Places b = enter(*use, "b", 9, refusal);
    CHECK(b.size() == 2);
    CHECK(refusal == "the export has 5 connections, which is its limit");
    a.pop_back();
    CHECK(enter(*use, "c", 9, refusal).size() == 1);
    CHECK(enter(*use, "a", 9, refusal).size() == 1);
    a.clear();
    b.clear();
    CHECK(enter(*use, "b", 9, refusal).size() == 3);
    // Lowering the limit closes no existing connection.
    b = enter(*use, "b", 3, refusal);
    use->apply(at_most(1));
    CHECK(enter(*use, "a", 9, refusal).empty());
    CHECK(refusal == "the export has 3 connections, which is its limit");
    b.clear();
    CHECK(enter(*use, "a", 9, refusal).size() == 1);
    use->apply(at_most(std::nullopt));
    CHECK(enter(*use, "a", 99, refusal).size() == 99);
}

TEST_CASE("export use: the limits hold while many threads connect and disconnect") {
    const auto use = std::make_shared<ExportUse>();
    constexpr std::uint32_t most = 5;
    constexpr std::uint32_t most_of_peer = 3;
    use->apply(at_most(most, most_of_peer));
    std::atomic<std::uint32_t> all{0};
    std::atomic<std::uint32_t> of_peer[2] = {0, 0};
    std::atomic<bool> too_many{false};
    std::atomic<int> entered{0};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i != 4; ++i) {
        threads.emplace_back([&, peer = i % 2] {
            for (int n = 0; n != 5000; ++n) {
                Places places;
                for (int wanted = 0; wanted != 3; ++wanted) {
                    auto answer = use->enter(peer == 0 ? "a" : "b");
                    if (!answer.lease) break;
                    places.push_back(std::move(answer.lease));
                    ++entered;
                    if (++all > most || ++of_peer[peer] > most_of_peer) too_many = true;
                }
                for (std::size_t left = places.size(); left != 0; --left) {
                    --all;
                    --of_peer[peer];
                }
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK_FALSE(too_many);
    CHECK(entered > 0);
    std::string refusal;
    CHECK(enter(*use, "c", 9, refusal).size() == most_of_peer);
}

TEST_CASE("export use: connections of a peer share a rate, which reconnecting does not reset") {
    const auto use = std::make_shared<ExportUse>();
    config::ExportOptions options;
    use->apply(options);
    auto first = use->enter("a").lease;
    CHECK(first->rates() == RateLimits{});
    options.rates.iops = 10;
    options.rates_per_peer.iops = 5;
    use->apply(options);
    const RateLimits rates = first->rates();
    REQUIRE(rates.of_peer != nullptr);
    REQUIRE(rates.of_export != nullptr);
    auto second = use->enter("a").lease;
    CHECK(second->rates() == rates);
    const auto other = use->enter("b").lease;
    CHECK(other->rates().of_peer != rates.of_peer);
    CHECK(other->rates().of_export == rates.of_export);
    rates.of_peer->take(0, TokenBucket::Clock::now());
    first.reset();
    second.reset();
    CHECK(use->enter("a").lease->rates() == rates);
    // Unchanged rates keep their state; changed rates start over.
    options.max_connections = 7;
    use->apply(options);
    CHECK(use->enter("a").lease->rates() == rates);
    options.rates.iops = 11;
    use->apply(options);
    const RateLimits later = use->enter("a").lease->rates();
    CHECK(later.of_peer == rates.of_peer);
    CHECK(later.of_export != rates.of_export);
    options.rates = {};
    options.rates_per_peer = {};
    use->apply(options);
    CHECK(other->rates() == RateLimits{});
}

TEST_CASE(
    "export use: it is open when all that have closed it have ended, and clients get the reason") {
    const auto use = std::make_shared<ExportUse>();
    const auto refusal = [&] { return use->enter("a").refusal; };
    auto restored = use->close("the export is being restored");
    REQUIRE(restored.closure);
    CHECK(refusal() == "the export is being restored");
    for (const bool forced : {false, true}) {
        auto removed = use->close("the export is being removed", forced);
        CHECK(removed.closure == nullptr);
        CHECK(removed.why_not == "the export is being restored; try again later");
    }
    auto others = use->close_to_others("the export gets new contents");
    restored.closure.reset();
    CHECK(refusal() == "the export gets new contents");
    others.reset();
    const auto client = use->enter("a").lease;
    REQUIRE(client);
    auto refused = use->close("the export is being removed");
    CHECK(refused.closure == nullptr);
    CHECK(refused.connections == 1);
    CHECK(refused.why_not == "1 client is connected");
    others = use->close_to_others("the export gets new contents");
    CHECK(client->disconnected().empty());
    others.reset();
    auto forced = use->close("the export is being removed", true);
    CHECK(client->disconnected() == "the export is being removed");
    forced.closure->make_final();
    forced.closure.reset();
    CHECK(refusal() == "the export is being removed");
}

TEST_CASE("export use: a peer is forgotten only if its bucket is full") {
    const auto use = std::make_shared<ExportUse>();
    config::ExportOptions options;
    options.rates_per_peer.iops = 1;
    options.rates_per_peer.burst = std::chrono::seconds(0);
    use->apply(options);
    const auto owes = use->enter("owes").lease->rates().of_peer;
    const TokenBucket::Time long_past = TokenBucket::Clock::now();
    for (int i = 0; i != 3600; ++i) owes->take(0, long_past);
    const std::weak_ptr<TokenBucket> free = use->enter("free").lease->rates().of_peer;
    for (int i = 0; i != 1000; ++i) use->enter(std::to_string(i));
    CHECK(free.expired());
    CHECK(use->enter("owes").lease->rates().of_peer == owes);
}

}  // namespace
}  // namespace gpunbd::server::test
