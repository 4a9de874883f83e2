// Storing the parts of a volume without memory, or with a supervisor that does not read: the server
// continues, and no part is stored in place of another.
#include "server/handover/supervisor_parts.hpp"

#include <sys/mman.h>

#include "tests/server/failing_allocation.hpp"
#include "tests/server/supervisor/living_supervisor.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;

const std::string keeper_id = "0123456789ab";
const std::string of_table = "gpunbd/0123456789ab/table";
const std::string of_slab = "gpunbd/0123456789ab/1/7";

// Kept parts with a table and a slab.
struct StoredParts {
    LivingSupervisor supervisor;
    DescriptorStore store{supervisor.way, std::nullopt, {}};
    std::shared_ptr<SupervisorParts> stored =
        std::make_shared<SupervisorParts>(store, keeper_id, 1min);
    VolumeParts kept_parts{stored, ""};
    VolumeParts other{std::make_shared<SupervisorParts>(store, "aaaaaaaaaaaa", 1min), ""};
    OwnedFd file{::memfd_create("slab", MFD_CLOEXEC)};

    StoredParts() {
        REQUIRE(kept_parts.keep_table(file));
        REQUIRE(kept_parts.keep(1, 7, file));
    }
    std::vector<std::string> names() { return supervisor.names(); }
    bool has(const std::string& name) {
        const auto all = names();
        return std::count(all.begin(), all.end(), name) == 1;
    }
};

// Runs `call` with each allocation failing in turn, together with all later ones; then runs `look`.
void fail_each(const std::function<void(StoredParts&)>& call,
               const std::function<void(StoredParts&)>& look) {
    failing_allocation::in_turn({1, 1000}, [&](const auto& fails) {
        StoredParts keeping;
        fails([&] { call(keeping); });
        look(keeping);
    });
}

TEST_CASE("volume parts: without memory a slab is either stored and removable, or not stored") {
    bool kept = false;
    fail_each([&](StoredParts& at) { kept = at.kept_parts.keep(2, 3, at.file); },
              [&](StoredParts& at) {
                  if (!kept) {
                      at.kept_parts.drop(2, 3);
                      CHECK(at.names() == std::vector{of_slab, of_table});
                      CHECK(at.kept_parts.keep(2, 3, at.file));
                  }
                  CHECK(at.has("gpunbd/0123456789ab/2/3"));
              });
    CHECK(kept);
}

TEST_CASE("volume parts: without memory a table is either stored and removable, or not stored") {
    bool kept = false;
    fail_each(
        [&](StoredParts& at) {
            kept = at.other.keep_table(at.file);
            if (!kept) {
                failing_allocation::disarm();
                at.other.drop_volume();
                CHECK(at.other.shared()->finish_removals());
                failing_allocation::arm(1000000);
            }
        },
        [&](StoredParts& at) { CHECK(at.has("gpunbd/aaaaaaaaaaaa/table") == kept); });
}

TEST_CASE("volume parts: a slab whose removal fails without memory is removed later") {
    fail_each([](StoredParts& at) { at.kept_parts.drop(1, 7); },
              [](StoredParts& at) {
                  CHECK(at.stored->finish_removals());
                  CHECK(at.names() == std::vector{of_table});
              });
    // Also if its number is stored again first: only the new slab is stored then.
    fail_each([](StoredParts& at) { at.kept_parts.drop(1, 7); },
              [](StoredParts& at) {
                  CHECK(at.kept_parts.keep(1, 7, at.file));
                  CHECK(at.stored->finish_removals());
                  CHECK(at.names() == std::vector{of_slab, of_table});
              });
}

TEST_CASE("volume parts: a slab is not stored while the removal of its name fails") {
    failing_allocation::in_turn({1}, [](const auto& fails) {
        StoredParts at;
        failing_allocation::take_part();
        failing_allocation::arm(1, 1000);
        at.kept_parts.drop(1, 7);
        failing_allocation::disarm();
        const OwnedFd next(::memfd_create("slab", MFD_CLOEXEC));
        fails([&] { at.kept_parts.keep(1, 7, next); });
        const auto names = at.names();
        CHECK(std::ranges::count(names, of_slab) <= 1);
    });
}

TEST_CASE("volume parts: a removal of all parts that fails without memory is done later") {
    fail_each([](StoredParts& at) { at.kept_parts.drop_volume(); },
              [](StoredParts& at) {
                  CHECK_FALSE(at.kept_parts.keeps());
                  // The next server would refuse slabs without their table.
                  const auto left = at.names();
                  if (!left.empty()) CHECK(left.size() == (at.has(of_table) ? 2 : 1));
                  CHECK(at.stored->finish_removals());
                  CHECK(at.names().empty());
              });
}

// The next message that is no barrier.
std::string next_of(const LateSupervisor& supervisor) {
    const std::string text = supervisor.socket->next_text();
    return text.starts_with("BARRIER") ? "" : text;
}

TEST_CASE("volume parts: no slab is stored under a name whose removal was not sent") {
    LateSupervisor supervisor;
    DescriptorStore store(supervisor.way, std::nullopt, {of_slab});
    const auto stored = std::make_shared<SupervisorParts>(store, keeper_id, 0ms);
    stored->add_kept(ContentsPart::slab_of(1, 7));
    VolumeParts kept_parts(stored, "");
    kept_parts.drop(1, 7);
    CHECK_FALSE(stored->finish_removals());
    const OwnedFd file(::memfd_create("slab", MFD_CLOEXEC));
    CHECK_FALSE(kept_parts.keep(1, 7, file));
    kept_parts.drop(1, 7);
    supervisor.start();
    SUBCASE("it is removed first") {
        kept_parts.keep(1, 7, file);
        CHECK(next_of(supervisor) == "FDSTOREREMOVE=1\nFDNAME=" + of_slab);
        CHECK(next_of(supervisor) == "FDSTORE=1\nFDNAME=" + of_slab + "\nFDPOLL=0");
    }
    SUBCASE("by another call") {
        kept_parts.keep(1, 8, file);
        CHECK(next_of(supervisor) == "FDSTOREREMOVE=1\nFDNAME=" + of_slab);
        CHECK(next_of(supervisor).starts_with("FDSTORE=1\nFDNAME=gpunbd/0123456789ab/1/8\n"));
    }
    SUBCASE("by itself") {
        CHECK(stored->finish_removals());
        CHECK(next_of(supervisor) == "FDSTOREREMOVE=1\nFDNAME=" + of_slab);
    }
    CHECK(next_of(supervisor).empty());
}

TEST_CASE("volume parts: a number that is stored twice is removed in between") {
    StoredParts at;
    REQUIRE(at.kept_parts.keep(1, 7, at.file));
    CHECK(at.names() == std::vector{of_slab, of_table});
}

TEST_CASE("volume parts: slabs are kept as long as one of the volumes that share them") {
    StoredParts at;
    VolumeParts clone(at.stored, "ba9876543210");
    REQUIRE(clone.keep_table(at.file));
    REQUIRE(clone.keep_directory(at.file));
    const std::string of_clone = of_table + "/ba9876543210";
    const std::string of_directory = "gpunbd/0123456789ab/slabs";
    CHECK(at.names() == std::vector{of_slab, of_directory, of_table, of_clone});
    at.kept_parts.drop_volume();
    CHECK(clone.keeps());
    REQUIRE(at.kept_parts.keep(1, 8, at.file));  // by the pool, which has the first ones
    CHECK(at.names() == std::vector{of_slab, "gpunbd/0123456789ab/1/8"s, of_directory, of_clone});
    clone.drop_volume();
    CHECK(at.names().empty());
    REQUIRE(at.kept_parts.keep(1, 9, at.file));  // still in use, but not kept
    CHECK(at.names().empty());
}

TEST_CASE("volume parts: the table is removed first, and slabs wait for its removal") {
    LateSupervisor supervisor;
    DescriptorStore store(supervisor.way, std::nullopt, {});
    const auto stored = std::make_shared<SupervisorParts>(store, keeper_id, 0ms);
    stored->add_kept(ContentsPart::slab_of(1, 7));
    VolumeParts kept_parts(stored, "");
    stored->add_kept(ContentsPart{});
    kept_parts.drop_volume();
    CHECK_FALSE(kept_parts.keeps());
    CHECK_FALSE(stored->finish_removals());
    supervisor.start();
    CHECK(stored->finish_removals());
    CHECK(next_of(supervisor) == "FDSTOREREMOVE=1\nFDNAME=" + of_table);
    CHECK(next_of(supervisor) == "FDSTOREREMOVE=1\nFDNAME=" + of_slab);
    CHECK(next_of(supervisor).empty());
}

}  // namespace
}  // namespace gpunbd::server::test
