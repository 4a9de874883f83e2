// What gives the parts of a volume to the supervisor, where memory runs out or the supervisor takes
// nothing: the server goes on, and no part is kept in place of another.
#include "server/handover/contents_retainer.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/server/failing_allocation.hpp"
#include "tests/server/supervisor/living_supervisor.hpp"

namespace gpunbd::server::test {
namespace {

using namespace std::chrono_literals;

const std::string keeper_id = "0123456789ab";
const std::string of_table = "gpunbd/0123456789ab/table";
const std::string of_slab = "gpunbd/0123456789ab/1/7";

// A keeper that keeps a table and a slab.
struct Retention {
    LivingSupervisor supervisor;
    NotifySocket way = supervisor.way();
    DescriptorStore store{way, std::nullopt, {}};
    ContentsRetainer keeper{store, keeper_id, 1min};
    OwnedFd file{::memfd_create("slab", MFD_CLOEXEC)};

    Retention() {
        REQUIRE(keeper.keep_table(file));
        REQUIRE(keeper.keep(1, 7, file));
    }
    std::vector<std::string> names() { return supervisor.names(way); }
    bool has(const std::string& name) {
        const auto all = names();
        return std::count(all.begin(), all.end(), name) == 1;
    }
};

// `call` with each allocation failing in turn, and all that follow; then `look`.
void fail_each(const std::function<void(Retention&)>& call,
               const std::function<void(Retention&)>& look) {
    failing_allocation::take_part();
    for (const std::int64_t count : {1, 1000}) {
        bool failed = true;
        for (std::int64_t number = 1; failed; ++number) {
            CAPTURE(number);
            Retention keeping;
            failing_allocation::arm(number, count);
            call(keeping);
            failed = failing_allocation::disarm();
            look(keeping);
        }
    }
}

TEST_CASE("contents keeper: without memory a slab is kept, or is not, and is forgotten then") {
    bool kept = false;
    fail_each([&](Retention& at) { kept = at.keeper.keep(2, 3, at.file); },
              [&](Retention& at) {
                  if (!kept) {
                      at.keeper.forget(2, 3);
                      CHECK(at.names() == std::vector{of_slab, of_table});
                      CHECK(at.keeper.keep(2, 3, at.file));
                  }
                  CHECK(at.has("gpunbd/0123456789ab/2/3"));
              });
    CHECK(kept);
}

TEST_CASE("contents keeper: without memory a table is kept, or is not, and is forgotten then") {
    bool kept = false;
    fail_each(
        [&](Retention& at) {
            ContentsRetainer another(at.store, "aaaaaaaaaaaa", 1min);
            kept = another.keep_table(at.file);
            if (!kept) {
                failing_allocation::disarm();
                another.forget_all();
                CHECK(another.finish_removals());
                failing_allocation::arm(1000000);
            }
        },
        [&](Retention& at) { CHECK(at.has("gpunbd/aaaaaaaaaaaa/table") == kept); });
}

TEST_CASE("contents keeper: without memory a slab is forgotten later, but it is") {
    fail_each([](Retention& at) { at.keeper.forget(1, 7); },
              [](Retention& at) {
                  CHECK(at.keeper.finish_removals());
                  CHECK(at.names() == std::vector{of_table});
              });
    // Also if its number is kept again first: what is kept is the new one.
    fail_each([](Retention& at) { at.keeper.forget(1, 7); },
              [](Retention& at) {
                  CHECK(at.keeper.keep(1, 7, at.file));
                  CHECK(at.keeper.finish_removals());
                  CHECK(at.names() == std::vector{of_slab, of_table});
              });
}

TEST_CASE("contents keeper: without memory all is forgotten later, but it is") {
    fail_each([](Retention& at) { at.keeper.forget_all(); },
              [](Retention& at) {
                  CHECK_FALSE(at.keeper.keeps());
                  // Slabs without their table would be refused by the next server.
                  const auto left = at.names();
                  if (!left.empty()) CHECK(left.size() == (at.has(of_table) ? 2 : 1));
                  CHECK(at.keeper.finish_removals());
                  CHECK(at.names().empty());
              });
}

// A supervisor that comes late, at a path.
struct LateSupervisor {
    const std::string path =
        (std::filesystem::temp_directory_path() / ("gpunbd-keeper-" + std::to_string(::getpid())))
            .string();
    std::optional<PlayedSupervisor> socket;

    NotifySocket way() const {
        ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
        return std::move(*NotifySocket::from_environment());
    }
    void come() { socket.emplace(path); }
    std::string next() const {
        const auto message = socket->next();
        if (!message || message->text.starts_with("BARRIER")) return "";
        return message->text;
    }
    ~LateSupervisor() { ::unlink(path.c_str()); }
};

TEST_CASE("contents keeper: no slab is kept under a name whose removal was not sent") {
    LateSupervisor supervisor;
    const NotifySocket way = supervisor.way();
    DescriptorStore store(way, std::nullopt, {of_slab});
    ContentsRetainer keeper(store, keeper_id, 0ms);
    keeper.knows(ContentsName::Place{1, 7});
    keeper.forget(1, 7);
    CHECK_FALSE(keeper.finish_removals());
    const OwnedFd file(::memfd_create("slab", MFD_CLOEXEC));
    CHECK_FALSE(keeper.keep(1, 7, file));
    keeper.forget(1, 7);
    supervisor.come();
    SUBCASE("it is removed first") {
        keeper.keep(1, 7, file);
        CHECK(supervisor.next() == "FDSTOREREMOVE=1\nFDNAME=" + of_slab);
        CHECK(supervisor.next() == "FDSTORE=1\nFDNAME=" + of_slab + "\nFDPOLL=0");
    }
    SUBCASE("by another call") {
        keeper.keep(1, 8, file);
        CHECK(supervisor.next() == "FDSTOREREMOVE=1\nFDNAME=" + of_slab);
        CHECK(supervisor.next().starts_with("FDSTORE=1\nFDNAME=gpunbd/0123456789ab/1/8\n"));
    }
    SUBCASE("by itself") {
        CHECK(keeper.finish_removals());
        CHECK(supervisor.next() == "FDSTOREREMOVE=1\nFDNAME=" + of_slab);
    }
    CHECK(supervisor.next().empty());
}

TEST_CASE("contents keeper: a number that is kept twice is removed in between") {
    Retention at;
    REQUIRE(at.keeper.keep(1, 7, at.file));
    CHECK(at.names() == std::vector{of_slab, of_table});
}

TEST_CASE("contents keeper: the table is the first to be removed, and slabs wait for it") {
    LateSupervisor supervisor;
    const NotifySocket way = supervisor.way();
    DescriptorStore store(way, std::nullopt, {});
    ContentsRetainer keeper(store, keeper_id, 0ms);
    keeper.knows(ContentsName::Place{1, 7});
    keeper.knows(std::nullopt);
    keeper.forget_all();
    CHECK_FALSE(keeper.keeps());
    CHECK_FALSE(keeper.finish_removals());
    supervisor.come();
    CHECK(keeper.finish_removals());
    CHECK(supervisor.next() == "FDSTOREREMOVE=1\nFDNAME=" + of_table);
    CHECK(supervisor.next() == "FDSTOREREMOVE=1\nFDNAME=" + of_slab);
    CHECK(supervisor.next().empty());
}

}  // namespace
}  // namespace gpunbd::server::test
