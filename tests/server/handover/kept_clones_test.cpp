// Kept contents that share pages: they are taken over together, and each ends by itself.
#include "tests/server/handover/kept_rig.hpp"
#include "tests/storage/pages/words.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using Clock = KeptContents::Clock;

constexpr auto beyond_grace = std::chrono::seconds(61);

config::ExportOptions kept_clone(const std::string& name, const std::string& source) {
    config::ExportOptions options;
    options.name = name;
    options.clone_of = source;
    options.keep = true;
    return options;
}

void write(Life& life, std::size_t number, std::uint64_t page, std::uint64_t word) {
    storage::test::write_word(*life.exports.at(number)->volume, page, word);
}

// 0: a hole.
std::uint64_t read(Life& life, std::size_t number, std::uint64_t page) {
    return storage::test::read_word(*life.exports.at(number)->volume, page);
}

const config::ExportList both = {kept_export("source"), kept_clone("clone", "source")};

// A server with both. They have page 0 in common, and different pages 1.
void leave_both(LivingSupervisor& supervisor) {
    Life life(supervisor);
    REQUIRE(life.make({both[0]}).problems.empty());
    write(life, 0, 0, 1);
    write(life, 0, 1, 2);
    REQUIRE(life.make(both).problems.empty());
    CHECK_FALSE(life.settle(Clock::now()));
    write(life, 1, 1, 3);
}

void end_grace(Life& life) {
    life.settle(Clock::now());
    life.settle(Clock::now() + beyond_grace);
}

TEST_CASE("kept clones: the next server takes them over with their source") {
    LivingSupervisor supervisor;
    leave_both(supervisor);
    for (int lives = 0; lives != 2; ++lives) {
        Life next(supervisor);
        REQUIRE(next.make(both).problems.empty());
        REQUIRE(next.exports.size() == 2);
        CHECK_FALSE(next.settle(Clock::now()));
        CHECK(read(next, 0, 0) == 1);
        CHECK(read(next, 1, 0) == 1);
        CHECK(read(next, 0, 1) == 2);
        CHECK(read(next, 1, 1) == 3);
        CHECK(next.exports[1]->volume->contents().shared == kept_page);
        CHECK(next.state_of("clone") == "in use");
        // For a successor, each part once.
        std::set<std::string> names;
        for (const auto& each : next.contents.copies()) CHECK(names.insert(each.name).second);
        const auto stored = supervisor.names();
        CHECK(names == std::set(stored.begin(), stored.end()));
    }
}

TEST_CASE("kept clones: incomplete contents are freed and made again, and the others stay") {
    LivingSupervisor supervisor;
    std::uint64_t of_source = 2;
    std::uint64_t of_clone = 3;
    bool alone = false;
    SUBCASE("those of a clone") {
        leave_both(supervisor);
        Life life(supervisor);
        REQUIRE(life.make(both).problems.empty());
        REQUIRE_FALSE(life.exports[1]->volume->set_incomplete());
        of_clone = 2;  // what its source has when it is made again
    }
    SUBCASE("those of its source") {
        leave_both(supervisor);
        Life life(supervisor);
        REQUIRE(life.make(both).problems.empty());
        REQUIRE_FALSE(life.exports[0]->volume->set_incomplete());
        of_source = 0;
    }
    SUBCASE("those without a clone") {
        alone = true;
        Life life(supervisor);
        REQUIRE(life.make({both[0]}).problems.empty());
        write(life, 0, 1, 2);
        REQUIRE_FALSE(life.volume().set_incomplete());
        CHECK(life.state_of("source") == "being restored");
        const MadeExports made = life.make(both);
        REQUIRE(made.refused.size() == 1);
        CHECK(contains(made.refused[0].why, "export 'source' is being restored; try again later"));
        CHECK(life.volume().resize(kept_page) == "its contents are being made; try again later");
    }
    Life next(supervisor);
    if (alone) {
        CHECK(supervisor.names().empty());
        return;
    }
    REQUIRE(next.make(both).refused.empty());
    CHECK_FALSE(next.settle(Clock::now()));
    CHECK(read(next, 0, 1) == of_source);
    CHECK(read(next, 1, 1) == of_clone);
    // There is no grace for them without an export.
    REQUIRE_FALSE(next.exports[1]->volume->set_incomplete());
    REQUIRE(next.make({both[0]}).problems.empty());
    CHECK_FALSE(next.settle(Clock::now()));
    CHECK(next.state_of("clone") == "there is none");
}

TEST_CASE("kept clones: they outlive their source") {
    LivingSupervisor supervisor;
    leave_both(supervisor);
    config::ExportOptions clone = both[1];
    clone.provenance.run_time = true;
    {
        Life without(supervisor);
        REQUIRE(without.make({clone}).problems.empty());
        CHECK(without.settle(Clock::now()));
        CHECK(without.state_of("source") == "no export has them");
        without.settle(Clock::now() + beyond_grace);
        CHECK(without.state_of("source") == "there is none");
        write(without, 0, 2, 4);
    }
    Life next(supervisor);
    REQUIRE(next.make({clone}).problems.empty());
    CHECK(read(next, 0, 0) == 1);
    CHECK(read(next, 0, 1) == 3);
    CHECK(read(next, 0, 2) == 4);
    CHECK(next.contents.summaries().size() == 1);
    // The last one frees everything.
    CHECK(next.make({}).problems.empty());
    end_grace(next);
    CHECK(supervisor.names().empty());
}

TEST_CASE("kept clones: those that no export has are freed, and their source stays") {
    LivingSupervisor supervisor;
    leave_both(supervisor);
    Life next(supervisor);
    SUBCASE("after the others were taken over") {
        REQUIRE(next.make({both[0]}).problems.empty());
        next.settle(Clock::now());
        CHECK(next.contents.drop("clone") == 1);
    }
    SUBCASE("before") {
        CHECK(next.contents.drop("clone") == 1);
        REQUIRE(next.make({both[0]}).problems.empty());
    }
    CHECK(next.state_of("clone") == "there is none");
    CHECK(read(next, 0, 0) == 1);
    CHECK(read(next, 0, 1) == 2);
    // A new clone has what the source has now.
    REQUIRE(next.make(both).problems.empty());
    CHECK(read(next, 1, 1) == 2);
}

TEST_CASE(
    "kept clones: without an export they are taken over and counted, and an export gets them") {
    LivingSupervisor supervisor;
    leave_both(supervisor);
    Life next(supervisor);
    REQUIRE(next.make({}).problems.empty());
    next.settle(Clock::now());
    const auto unused = next.contents.unused();
    REQUIRE(unused.size() == 2);
    std::uint64_t allocated = 0;
    for (const auto& each : unused) {
        CHECK(each.state == "no export has them");
        CHECK(each.ends);
        const auto volume = each.volume.lock();
        REQUIRE(volume);
        allocated += volume->allocated_bytes();
    }
    CHECK(allocated == next.device(0).budget().used() + next.device(1).budget().used());
    CHECK(allocated != 0);
    REQUIRE(next.make(both).problems.empty());
    next.settle(Clock::now());
    CHECK(next.contents.unused().empty());
    CHECK(read(next, 0, 1) == 2);
    CHECK(read(next, 1, 1) == 3);
    // Those of an export that is removed on request end with it.
    next.contents.drop(*next.exports[1]->volume);
    REQUIRE(next.make({both[0]}).problems.empty());
    next.settle(Clock::now());
    CHECK(next.contents.unused().empty());
    CHECK(next.state_of("clone") == "there is none");
    CHECK(read(next, 0, 1) == 2);
}

TEST_CASE("kept clones: contents that were made for another export are refused") {
    LivingSupervisor supervisor;
    leave_both(supervisor);
    Life next(supervisor);
    const MadeExports made = next.make({both[0], kept_export("clone")});
    REQUIRE(made.refused.size() == 1);
    CHECK(made.refused[0].why.starts_with(
        "export 'clone': its kept contents cannot be taken over: they "
        "were made for size unset"));
    // They are not freed while the export is refused, and are there for the right one.
    end_grace(next);
    REQUIRE(next.make(both).refused.empty());
    CHECK(read(next, 1, 1) == 3);
}

TEST_CASE("kept clones: those of a removed clone do not prevent a new export of its name") {
    LivingSupervisor supervisor;
    config::ExportOptions source = kept_export("source");
    config::ExportOptions other = kept_export("clone", 4);
    SUBCASE("with kept contents of its own") {}
    SUBCASE("without kept contents") { other.keep = false; }
    {
        Life first(supervisor);
        REQUIRE(first.make({source, kept_clone("clone", "source")}).problems.empty());
        REQUIRE(first.make({source}).problems.empty());
        first.settle(Clock::now());
        REQUIRE(first.make({source, other}).problems.empty());
        first.settle(Clock::now());
        CHECK(first.contents.summaries().size() == (other.keep ? 3 : 2));
    }
    Life next(supervisor);
    REQUIRE(next.make({source, other}).refused.empty());
    next.settle(Clock::now());
    CHECK(next.contents.summaries().size() == (other.keep ? 3 : 2));
    CHECK(next.exports.at(1)->volume->size() == 4 * kept_page);
}

TEST_CASE("kept clones: keep does not change while pages are shared") {
    LivingSupervisor supervisor;
    Life life(supervisor);
    REQUIRE(life.make(both).problems.empty());
    life.settle(Clock::now());
    config::ExportList without = both;
    without[0].keep = without[1].keep = false;
    const MadeExports made = life.make(without);
    REQUIRE_FALSE(made.problems.empty());
    CHECK(
        made.problems[0].starts_with("export 'source': keep cannot change while it shares memory"));
}

TEST_CASE("kept clones: a snapshot does not become writable, by a change or by the next server") {
    LivingSupervisor supervisor;
    config::ExportList exports = both;
    exports[1].read_only = true;
    {
        Life life(supervisor);
        REQUIRE(life.make(exports).problems.empty());
        life.settle(Clock::now());
        const MadeExports made = life.make(both);
        REQUIRE(made.problems.size() == 1);
        CHECK(made.problems[0] ==
              "export 'clone': it is a snapshot, which cannot become writable; write to a clone of "
              "it (gpunbd export clone 'clone' NAME)");
    }
    Life next(supervisor);
    const MadeExports made = next.make(both);
    REQUIRE(made.refused.size() == 1);
    CHECK(contains(made.refused[0].why, "clone_of 'source', read_only, but the export has"));
    CHECK(next.make(exports).refused.empty());
}

TEST_CASE("kept clones: a clone that an administrator makes read-only can be written again") {
    LivingSupervisor supervisor;
    Life life(supervisor);
    REQUIRE(life.make(both).problems.empty());
    config::ExportList exports = both;
    exports[1].read_only = exports[1].provenance.made_read_only = true;
    CHECK(life.make(exports).problems.empty());
    CHECK(life.make(both).problems.empty());
}

TEST_CASE("kept clones: an export is refused together with its source") {
    LivingSupervisor supervisor;
    leave_both(supervisor);
    Life next(supervisor);
    const MadeExports made =
        next.make({kept_export("source", 4), kept_clone("new", "source"), kept_export("other")});
    CHECK(made.problems.empty());
    REQUIRE(made.refused.size() == 2);
    CHECK(made.refused[1].why == "export 'new': clone_of: there is no export 'source' above it");
    CHECK(made.exports.size() == 1);
}

TEST_CASE("kept clones: without the table of one, none is taken over, and nothing is freed") {
    LivingSupervisor supervisor;
    leave_both(supervisor);
    const Names names = supervisor.names();
    const auto of_clone = std::ranges::find_if(
        names, [](const std::string& each) { return contains(each, "/table/"); });
    REQUIRE(of_clone != names.end());
    supervisor.corrupt(*of_clone, 0);
    Life next(supervisor);
    const MadeExports made = next.make({both[0]});
    REQUIRE(made.refused.size() == 1);
    CHECK(contains(made.refused[0].why, "they share pages with the contents "));
    end_grace(next);
    CHECK(supervisor.names() == names);
}

TEST_CASE("kept clones: none is made while another process takes the contents over") {
    LivingSupervisor supervisor;
    Life life(supervisor);
    REQUIRE(life.make({both[0]}).problems.empty());
    write(life, 0, 0, 1);
    life.contents.quiesce();
    const MadeExports made = life.make(both);
    REQUIRE(made.problems.size() == 1);
    CHECK(contains(made.problems[0], "a kept export with clone_of cannot be added by an upgrade"));
    life.contents.resume();
    REQUIRE(life.make(both).problems.empty());
    CHECK(read(life, 1, 0) == 1);
}

}  // namespace
}  // namespace gpunbd::server::test
