#include "storage/base/histogram.hpp"

#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

using std::chrono::nanoseconds;

TEST_CASE("histogram: no quantile exceeds the maximum") {
    struct Row {
        const char* name;
        std::initializer_list<std::int64_t> ns;
        std::uint64_t median;
        std::uint64_t p99;
        std::uint64_t max;
    };
    const Row rows[] = {
        {"nothing", {}, 0, 0, 0},
        {"zero", {0}, 0, 0, 0},
        {"exact buckets", {1, 2, 3}, 2, 3, 3},
        {"the lower edge of its bucket", {1024}, 1024, 1024, 1024},
        {"within its bucket", {1'000'000}, 1'000'000, 1'000'000, 1'000'000},
        {"another bucket is shown by its upper edge", {100, 1024, 5000}, 1151, 5000, 5000},
        {"negative is none", {-5}, 0, 0, 0},
        {"longer than the last bucket",
         {std::int64_t{1} << 60},
         1ULL << 60,
         1ULL << 60,
         1ULL << 60},
    };
    for (const Row& row : rows) {
        CAPTURE(row.name);
        Histogram one;
        for (const std::int64_t ns : row.ns) one.record(nanoseconds(ns));
        Histogram sum;
        sum.add(one);
        for (const Histogram* histogram : {&one, &sum}) {
            CHECK(histogram->count() == row.ns.size());
            CHECK(histogram->quantile(0.5) == row.median);
            CHECK(histogram->quantile(0.99) == row.p99);
            CHECK(histogram->max() == row.max);
        }
    }
}

TEST_CASE("histogram: no quantile exceeds the maximum during concurrent writes") {
    Histogram written;
    std::atomic<bool> stop{false};
    std::thread writer([&] {
        for (std::int64_t ns = 1; !stop; ns += 1 + ns / 64) {
            written.record(nanoseconds(ns));
            if (ns > 1'000'000'000'000) ns = 1;
        }
    });
    while (written.count() < 1000) std::this_thread::yield();
    for (int i = 0; i != 300; ++i) {
        Histogram copy;
        copy.add(written);
        const std::uint64_t p99 = written.quantile(0.99);
        CHECK(p99 <= written.max());
        CHECK(copy.quantile(0.99) <= copy.max());
        CHECK(copy.quantile(0.5) <= copy.quantile(0.99));
    }
    stop = true;
    writer.join();
}

TEST_CASE("histogram: counts the values up to a bound") {
    Histogram histogram;
    for (const std::int64_t ns : {0, 7, 8, 1000, 1023, 1024, 1'000'000'000}) {
        histogram.record(nanoseconds(ns));
    }
    histogram.record(std::chrono::hours(1));  // in the last bucket, which has no upper edge
    struct Row {
        const char* name;
        std::uint64_t ns;
        std::uint64_t count;
    };
    const Row rows[] = {
        {"zero", 0, 1},
        {"an exact bucket", 7, 2},
        {"the one above it", 8, 3},
        {"within a bucket", 1000, 3},
        {"its upper edge", 1023, 5},
        {"the lower edge of the next", 1024, 5},
        {"above", 1151, 6},
        {"a minute", 60'000'000'000, 7},
        {"two hours", 7'200'000'000'000, 7},
        {"all that can be", ~std::uint64_t{0}, 7},
    };
    for (const Row& row : rows) {
        CAPTURE(row.name);
        CHECK(histogram.count_up_to(row.ns) == row.count);
    }
    CHECK(histogram.count() == 8);
}

TEST_CASE("histogram: since() returns the values recorded after a snapshot") {
    Histogram all;
    all.record(nanoseconds(10));
    const Histogram before(all);
    all.record(nanoseconds(100));
    all.record(nanoseconds(100));
    const Histogram since = all.since(before);
    CHECK(before.count() == 1);
    CHECK(since.count() == 2);
    CHECK(since.sum() == 200);
    CHECK(since.quantile(0) == 100);
    CHECK(all.sum() == 210);
}

}  // namespace
}  // namespace gpunbd::storage::test
