// Connection leases and rates of an export: exact, with many threads, and across reloads. Token
// buckets have a simulated clock: their tests do not wait, and all results are exact.
#include "server/exports/export_use.hpp"

#include "tests/storage/random.hpp"
#include "tests/test.hpp"

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

using std::chrono::duration;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using storage::test::Random;

constexpr std::uint64_t kb = 1024;
constexpr std::uint64_t mb = 1024 * kb;
const TokenBucket::Time bucket_start{seconds(1'000'000)};

config::Rates rates(std::optional<std::uint64_t> bytes, std::optional<std::uint64_t> iops,
                    int burst = 0) {
    return {.bytes_per_second = bytes, .iops = iops, .burst = seconds(burst)};
}

struct Sent {
    TokenBucket::Time at;
    std::uint64_t bytes;
    std::size_t client;
};

// Simulates clients until `end`, each with one waiting request at a time.
template <typename Size>
std::vector<Sent> under_load(TokenBucket& bucket, std::size_t clients, TokenBucket::Time end,
                             Size size, nanoseconds late = {}) {
    struct Waiting {
        std::uint64_t bytes;
        std::size_t client;
    };
    std::vector<Sent> sent;
    std::multimap<TokenBucket::Time, Waiting> waiting;
    for (std::size_t i = 0; i != clients; ++i) {
        const std::uint64_t bytes = size(i);
        waiting.emplace(bucket.take(bytes, bucket_start), Waiting{bytes, i});
    }
    while (waiting.begin()->first < end) {
        const auto [at, next] = *waiting.begin();
        waiting.erase(waiting.begin());
        sent.push_back({at, next.bytes, next.client});
        const std::uint64_t bytes = size(next.client);
        waiting.emplace(bucket.take(bytes, at + late), Waiting{bytes, next.client});
    }
    return sent;
}

// The minimum and the maximum over all windows of one second that begin with a request.
struct Windows {
    std::uint64_t least = UINT64_MAX;
    std::uint64_t most = 0;
};
template <typename Weight>
Windows windows(const std::vector<Sent>& sent, TokenBucket::Time from, TokenBucket::Time end,
                Weight weight) {
    Windows out;
    std::size_t last = 0;
    std::uint64_t sum = 0;
    for (std::size_t first = 0; first != sent.size(); ++first) {
        const TokenBucket::Time until = sent[first].at + seconds(1);
        if (until > end) break;
        for (; last != sent.size() && sent[last].at < until; ++last) sum += weight(sent[last]);
        if (sent[first].at >= from) {
            out.least = std::min(out.least, sum);
            out.most = std::max(out.most, sum);
        }
        sum -= weight(sent[first]);
    }
    return out;
}

std::uint64_t bytes_of(const Sent& sent) { return sent.bytes; }
std::uint64_t one(const Sent&) { return 1; }

TEST_CASE("rates: under load the throughput equals the rate in each second, to 2%") {
    struct Row {
        std::uint64_t rate;
        std::uint64_t size;
        std::size_t clients;
        int late_us;
    };
    const Row rows[] = {
        {100 * mb, 4 * kb, 1, 0},  {100 * mb, 4 * kb, 16, 80}, {100 * mb, mb, 7, 300},
        {10 * mb, 64 * kb, 3, 90}, {3 * mb, 4 * kb + 1, 5, 0}, {64 * kb, 512, 2, 1000},
        {1024 * mb, 4 * kb, 8, 2}, {999'999, 1000, 4, 60},
    };
    for (const Row& row : rows) {
        CAPTURE(row.rate);
        CAPTURE(row.size);
        TokenBucket bucket(rates(row.rate, std::nullopt), bucket_start);
        const TokenBucket::Time end = bucket_start + seconds(4);
        const auto sent = under_load(
            bucket, row.clients, end, [&](std::size_t) { return row.size; },
            std::chrono::microseconds(row.late_us));
        const Windows found = windows(sent, bucket_start + seconds(1), end, bytes_of);
        const auto rate = static_cast<double>(row.rate);
        CHECK(static_cast<double>(found.most) <= 1.02 * rate);
        CHECK(static_cast<double>(found.least) >= 0.98 * rate);
    }
}

TEST_CASE("rates: under load the IOPS equal the rate, to 2%, for any request size") {
    for (const std::uint64_t iops :
         {std::uint64_t{100}, std::uint64_t{1000}, std::uint64_t{77'777}}) {
        CAPTURE(iops);
        TokenBucket bucket(rates(std::nullopt, iops), bucket_start);
        const TokenBucket::Time end = bucket_start + seconds(3);
        const auto sent = under_load(bucket, 9, end,
                                     [](std::size_t client) { return client * 1000 * mb / 1000; });
        const Windows found = windows(sent, bucket_start + seconds(1), end, one);
        CHECK(found.most <= iops + iops / 50);
        CHECK(found.least >= iops - iops / 50);
    }
}

TEST_CASE("rates: if two rates are set, the lower one limits") {
    TokenBucket small(rates(100 * mb, 1000), bucket_start);
    const TokenBucket::Time end = bucket_start + seconds(3);
    auto sent = under_load(small, 4, end, [](std::size_t) { return 4 * kb; });
    CHECK(windows(sent, bucket_start + seconds(1), end, one).most <= 1020);
    CHECK(windows(sent, bucket_start + seconds(1), end, one).least >= 980);
    TokenBucket large(rates(100 * mb, 1000), bucket_start);
    sent = under_load(large, 4, end, [](std::size_t) { return 500 * kb; });
    CHECK(windows(sent, bucket_start + seconds(1), end, bytes_of).most <= 102 * mb);
    CHECK(windows(sent, bucket_start + seconds(1), end, bytes_of).least >= 98 * mb);
}

TEST_CASE("rates: no interval exceeds the rate plus the burst, for any input") {
    Random random(5);
    for (const int burst : {0, 1, 3}) {
        CAPTURE(burst);
        constexpr std::uint64_t rate = 5 * mb;
        TokenBucket bucket(rates(rate, std::nullopt, burst), bucket_start);
        std::vector<Sent> sent;
        TokenBucket::Time now = bucket_start;
        for (int i = 0; i != 3000; ++i) {
            // Pauses and bursts of requests.
            if (random.one_in(50)) now += std::chrono::milliseconds(random.below(4000));
            now += std::chrono::microseconds(random.below(3000));
            const std::uint64_t bytes = 1 + random.below(40 * kb);
            sent.push_back({bucket.take(bytes, now), bytes, 0});
            CHECK(sent.back().at >= now);
        }
        CHECK(std::is_sorted(sent.begin(), sent.end(),
                             [](const Sent& a, const Sent& b) { return a.at < b.at; }));
        const double least_burst = 0.01;
        const double at_once = std::max(least_burst, double(burst)) * rate;
        bool kept = true;
        for (std::size_t first = 0; first < sent.size(); first += 7) {
            double sum = 0;
            for (std::size_t i = first; i != sent.size(); ++i) {
                sum += static_cast<double>(sent[i].bytes);
                const double time = duration<double>(sent[i].at - sent[first].at).count();
                kept = kept && sum <= time * rate + at_once + 1;
            }
        }
        CHECK(kept);
    }
}

TEST_CASE("rates: after a pause the burst is available at once, up to its limit") {
    TokenBucket bucket(rates(std::nullopt, 100, 2), bucket_start);
    const auto at_once = [&](TokenBucket::Time now) {
        int count = 0;
        while (bucket.take(0, now) == now) ++count;
        bucket.give_back(0);  // the request that was delayed
        return count;
    };
    CHECK(at_once(bucket_start) == 200);
    CHECK(at_once(bucket_start) == 0);
    CHECK(at_once(bucket_start + std::chrono::milliseconds(100)) == 10);
    CHECK(at_once(bucket_start + seconds(3600)) == 200);
    CHECK(at_once(bucket_start + seconds(3600)) == 0);
}

TEST_CASE("rates: a request larger than the burst is executed and delays later ones") {
    TokenBucket bucket(rates(mb, std::nullopt, 1), bucket_start);
    CHECK(bucket.take(32 * mb, bucket_start) == bucket_start);  // the bucket is full
    CHECK(bucket.take(4 * kb, bucket_start) > bucket_start + seconds(31));
    CHECK(bucket.take(4 * kb, bucket_start) < bucket_start + seconds(32));
    // If the bucket is not full, such a request waits until it is.
    TokenBucket used(rates(mb, std::nullopt, 1), bucket_start);
    CHECK(used.take(mb / 2, bucket_start) == bucket_start);
    CHECK(used.take(32 * mb, bucket_start) == bucket_start + std::chrono::milliseconds(500));
}

TEST_CASE("rates: delayed requests are served in order, also beside large requests") {
    TokenBucket bucket(rates(10 * mb, std::nullopt), bucket_start);
    const TokenBucket::Time end = bucket_start + seconds(30);
    const auto sent = under_load(bucket, 5, end,
                                 [](std::size_t client) { return client == 0 ? 8 * mb : 4 * kb; });
    std::vector<std::size_t> counts(5);
    for (const Sent& each : sent) ++counts[each.client];
    CHECK(counts[0] > 30);
    for (const std::size_t count : counts) {
        CHECK(count + 1 >= counts[0]);
        CHECK(count <= counts[0] + 1);
    }
}

TEST_CASE("rates: returned tokens are available again") {
    TokenBucket bucket(rates(mb, 1000), bucket_start);
    CHECK(bucket.full(bucket_start));
    const TokenBucket::Time first = bucket.take(mb, bucket_start);
    CHECK_FALSE(bucket.full(bucket_start));
    const TokenBucket::Time second = bucket.take(mb, bucket_start);
    CHECK(second > first + std::chrono::milliseconds(900));
    bucket.give_back(mb);
    bucket.give_back(mb);
    CHECK(bucket.full(bucket_start));
    CHECK(bucket.take(mb, bucket_start) == first);
    CHECK(bucket.full(bucket_start + seconds(2)));
}

TEST_CASE("rates: concurrent threads never take the same tokens") {
    constexpr std::uint64_t rate = mb;
    constexpr std::uint64_t size = 1000;
    constexpr int threads = 4;
    constexpr int each = 5000;
    TokenBucket bucket(rates(rate, std::nullopt), bucket_start);
    std::vector<std::thread> takers;
    std::vector<TokenBucket::Time> last(threads);
    takers.reserve(threads);
    for (int i = 0; i != threads; ++i) {
        takers.emplace_back([&, i] {
            for (int n = 0; n != each; ++n)
                last[static_cast<std::size_t>(i)] = bucket.take(size, bucket_start);
        });
    }
    for (std::thread& taker : takers) taker.join();
    const double time =
        duration<double>(*std::max_element(last.begin(), last.end()) - bucket_start).count();
    const double expected = double(size) * threads * each / rate;
    CHECK(time <= expected);
    CHECK(time >= expected - 0.02);  // the burst, and the last request
}

// No configuration and no request overflows a time. UBSan detects overflows that the checks do not.
TEST_CASE("rates: extreme values do not overflow") {
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    for (const std::uint64_t rate : {std::uint64_t{1}, std::uint64_t{3}, most / 2, most}) {
        for (const std::int64_t burst :
             {std::int64_t{-1}, std::int64_t{0}, std::int64_t{3600},
              std::int64_t{1'000'000'000'000'000'000}, std::numeric_limits<std::int64_t>::max(),
              std::numeric_limits<std::int64_t>::min()}) {
            CAPTURE(rate);
            CAPTURE(burst);
            TokenBucket bucket({.bytes_per_second = rate, .iops = rate, .burst = seconds(burst)},
                               bucket_start);
            TokenBucket::Time last = bucket_start;
            for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, 32 * mb, most}) {
                for (int i = 0; i != 3; ++i) {
                    const TokenBucket::Time goes = bucket.take(bytes, bucket_start);
                    CHECK(goes >= last);
                    last = goes;
                }
            }
            for (int i = 0; i != 20; ++i) bucket.give_back(most);
            CHECK(bucket.take(0, bucket_start) >= bucket_start);
            CHECK(bucket.take(0, TokenBucket::Time::max()) > bucket_start);
            static_cast<void>(bucket.full(TokenBucket::Time::min()));
            CHECK(bucket.take(1, bucket_start) >= bucket_start);
        }
    }
}

}  // namespace
}  // namespace gpunbd::server::test
