// Taking over contents fails at each step: all parts stay with the supervisor, a later attempt is
// possible, and no descriptor leaks.
#include <sys/resource.h>

#include "tests/server/failing_allocation.hpp"
#include "tests/server/handover/kept_rig.hpp"
#include "tests/storage/no_threads.hpp"
#include "tests/storage/open_files.hpp"
#include "tests/storage/pages/abandoned_volume.hpp"
#include "tests/storage/pages/words.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using namespace std::chrono_literals;
using Clock = KeptContents::Clock;

constexpr std::uint64_t failing_pages = 5;

void stamp(storage::Volume& volume) {
    for (std::uint64_t page = 0; page != failing_pages; ++page) {
        storage::test::write_word(volume, page, page + 1);
    }
}

bool is_stamped(const storage::Volume& volume) {
    for (std::uint64_t page = 0; page != failing_pages; ++page) {
        if (storage::test::read_word(volume, page) != page + 1) return false;
    }
    return true;
}

// The contents of an earlier server.
struct EarlierServer {
    LivingSupervisor supervisor;
    config::ExportOptions options = kept_export("one");
    std::string instance;
    Names names;

    explicit EarlierServer(config::Provision provision = config::Provision::thin) {
        options.provision = provision;
        Life server(supervisor);
        REQUIRE(server.make({options}).problems.empty());
        instance = server.instance();
        stamp(server.volume());
        server.settle(Clock::now());
        names = supervisor.names();
        REQUIRE(names.size() == 3);
    }
};

// As the server does afterwards, and at each reload; then without the failure.
void check_all_is_there(EarlierServer& earlier, Life& next) {
    if (next.exports.empty()) next.refused = {{"one", ""}};
    const auto now = Clock::now();
    for (const auto later : {0s, 1s, 3600s}) next.settle(now + later);
    CHECK(earlier.supervisor.names() == earlier.names);
    REQUIRE(next.make({earlier.options}).problems.empty());
    REQUIRE(next.refused.empty());
    CHECK(next.instance() == earlier.instance);
    CHECK(is_stamped(next.volume()));
    CHECK(next.volume().mapped_bytes() == failing_pages * kept_page);
    next.settle(now + 3600s);
    CHECK(earlier.supervisor.names() == earlier.names);
}

TEST_CASE("kept contents: taking over fails at each allocation, and loses nothing") {
    for (const auto provision : {config::Provision::thin, config::Provision::full}) {
        failing_allocation::in_turn({1, 1000}, [&](const auto& fails) {
            EarlierServer earlier(provision);
            Life next(earlier.supervisor);
            next.device(0);
            next.device(1);
            fails([&] { next.make({earlier.options}); });
            check_all_is_there(earlier, next);
        });
    }
}

TEST_CASE("kept contents: taking over without a new thread loses nothing") {
    EarlierServer earlier;
    Life next(earlier.supervisor);
    {
        const storage::test::NoThreads none;
        CHECK(next.make({earlier.options}).exports.empty());
        REQUIRE(next.refused.size() == 1);
    }
    CHECK(next.state_of("one") == "Resource temporarily unavailable");
    check_all_is_there(earlier, next);
}

TEST_CASE("kept contents: taking over fails at each descriptor, loses nothing and leaks none") {
#if defined(__SANITIZE_ADDRESS__)
    MESSAGE("skipped: the sanitizer needs descriptors to read an object's type");
#else
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    // The limit with which `room` more descriptors can be opened. The free numbers may have gaps.
    const auto limit_with = [](std::size_t room) {
        std::vector<OwnedFd> copies;
        while (copies.size() <= room) copies.push_back(OwnedFd::copy_of(0));
        return static_cast<rlim_t>(copies.back().get());
    };
    bool failed = true;
    std::size_t room = 0;
    for (; failed; ++room) {
        CAPTURE(room);
        EarlierServer earlier;
        Life next(earlier.supervisor);
        next.device(0);
        next.device(1);
        const std::size_t files = storage::test::open_files();
        rlimit low = before;
        low.rlim_cur = limit_with(room);
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
        for (int round = 0; round != 2; ++round) next.make({earlier.options});
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
        failed = next.exports.empty();
        if (failed) CHECK(storage::test::open_files() == files);
        check_all_is_there(earlier, next);
    }
    CHECK(room == 4);  // the loop adds one: a table and two slabs need three descriptors
#endif
}

TEST_CASE("kept contents: two slabs under one name are rejected") {
    EarlierServer earlier;
    PassedDescriptors::Descriptors twice;
    {
        PassedDescriptors once = earlier.supervisor.hand_over();
        for (const std::string& name : earlier.names) {
            for (OwnedFd& each : once.take(name)) {
                if (name.ends_with("/0/0")) twice.emplace(name, OwnedFd::copy_of(each.get()));
                twice.emplace(name, std::move(each));
            }
        }
    }
    Life next(PassedDescriptors(std::move(twice)), earlier.supervisor.way);
    for (int round = 0; round != 2; ++round) {
        const MadeExports made = next.make({earlier.options});
        REQUIRE(made.refused.size() == 1);
        CHECK(contains(made.refused[0].why, "2 descriptors under the name gpunbd/"));
    }
    CHECK(earlier.supervisor.names() == earlier.names);
    CHECK(next.contents.drop("one") == 1);
    CHECK(earlier.supervisor.names().empty());
}

// A reload that fails after it has created its exports may be followed by another one before
// settle().
TEST_CASE(
    "kept contents: contents that a failed reload took over are available to the next reload") {
    EarlierServer earlier;
    Life next(earlier.supervisor);
    REQUIRE(next.make({earlier.options}).refused.empty());
    next.exports.clear();
    REQUIRE(next.make({earlier.options}).refused.empty());
    check_all_is_there(earlier, next);
}

TEST_CASE("kept contents: new contents fail at each allocation, and nothing is kept") {
    for (const auto provision : {config::Provision::thin, config::Provision::full}) {
        config::ExportOptions options = kept_export("one");
        options.provision = provision;
        failing_allocation::in_turn({1, 1000}, [&](const auto& fails) {
            LivingSupervisor supervisor;
            Life server(supervisor);
            server.device(0);
            server.device(1);
            fails([&] { server.make({options}); });
            const bool made = !server.exports.empty();
            server.settle(Clock::now());
            const std::size_t whole = provision == config::Provision::full ? 3 : 1;
            CHECK(supervisor.names().size() == (made ? whole : 0));
            CHECK(server.contents.summaries().size() == (made ? 1 : 0));
        });
    }
}

TEST_CASE("kept contents: freeing fails at each allocation, and is done later") {
    for (const bool of_an_earlier_server : {false, true}) {
        failing_allocation::in_turn({1000}, [&](const auto& fails) {
            EarlierServer earlier;
            Life server(earlier.supervisor);
            if (!of_an_earlier_server) {
                REQUIRE(server.make({earlier.options}).refused.empty());
                server.settle(Clock::now());
            }
            server.make({});
            const auto start = Clock::now();
            REQUIRE(server.settle(start));
            // After an exception, the server checks again at the next reload.
            std::optional<Clock::time_point> next = start + 60s;
            fails([&] { next = server.contents.settle({}, 60s, start + 60s); });
            // settle() returns the time of the next call.
            for (int rounds = 0; next && rounds != 3; ++rounds) next = server.settle(*next);
            CHECK_FALSE(next);
            CHECK(earlier.supervisor.names().empty());
            CHECK(server.contents.summaries().empty());
        });
    }
}

// A volume, without the layers above.
TEST_CASE("take over: each allocation fails in turn, and nothing has changed") {
    using namespace storage;
    using namespace storage::test;
    for (const CrashImage& image :
         {whole_volume_image(Provision::thin), unfinished_volume_image()}) {
        failing_allocation::in_turn({1, 1000}, [&](const auto& fails) {
            AbandonedVolume left(image);
            TwoDevices devices;
            const CrashImage before = left.read();
            auto table = checked(PageTable::open(OwnedFd::copy_of(left.table.get())));
            auto slabs = left.store->copies();
            std::optional<Taken> taken;
            const bool failed = fails([&] {
                taken =
                    Volume::take_over(std::move(table), devices.all, std::move(slabs), left.store);
            });
            if (taken && std::holds_alternative<std::unique_ptr<Volume>>(*taken)) return;
            CHECK(failed);
            CHECK(devices.used() == 0);
            CHECK(left.read() == before);
        });
    }
}

}  // namespace
}  // namespace gpunbd::server::test
