// The options of exports that were created at run time, with the supervisor and for a successor.
// Exports that get another name: what stays, and that a server that is killed meanwhile leaves each
// with one of the two names.
#include "server/handover/kept_exports.hpp"
#include "server/exports/reload_report.hpp"
#include "tests/server/handover/kept_rig.hpp"
#include "tests/server/supervisor/living_supervisor.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using Clock = KeptContents::Clock;

config::ExportOptions renamed(config::ExportOptions options, const std::string& name,
                              const std::string& instance) {
    options.name = name;
    options.provenance.renamed_contents = instance;
    return options;
}

TEST_CASE("renamed exports: the contents, the clients and the counters stay") {
    LivingSupervisor supervisor;
    std::string instance;
    {
        Life life(supervisor);
        REQUIRE(life.make({kept_export("zero"), kept_export("one")}).problems.empty());
        life.settle(Clock::now());
        const ExportRegistry::Exports before = life.exports;
        const std::shared_ptr<const Export>& one = before[1];
        instance = one->info.instance;
        storage::PageRef held;
        REQUIRE(one->volume->map(3, held) == storage::Status::ok);
        held = {};
        CHECK(life.contents.prepare_rename(*one->volume, "two").has_value());
        life.renaming = Renaming{.from = "one", .to = "two"};
        const config::ExportOptions two = renamed(kept_export("one"), "two", instance);
        REQUIRE(life.make({kept_export("zero"), two}).problems.empty());
        life.contents.rename(*one->volume, "two");
        const Export& now = *life.exports[1];
        CHECK(now.info.name == "two");
        CHECK(now.volume == one->volume);
        CHECK(now.use == one->use);
        CHECK(now.activity == one->activity);
        CHECK(life.exports[0] == before[0]);
        const auto lines = report_exports(before, life.exports, Unchanged::omit);
        REQUIRE(lines.size() == 1);
        CHECK(lines[0].text == "export 'one' has the name 'two' now; its clients stay connected");
        CHECK_FALSE(lines[0].warning);
        life.settle(Clock::now());
        CHECK(life.state_of("two") == "in use");
        CHECK(life.state_of("one") == "there is none");
        // The earlier name is free, for new contents.
        life.renaming.reset();
        REQUIRE(life.make({kept_export("zero"), two, kept_export("one")}).problems.empty());
        CHECK(life.instance(2) != instance);
        CHECK(life.exports[2]->use != one->use);
    }
    Life next(supervisor);
    REQUIRE(next.make({kept_export("two")}).refused.empty());
    CHECK(next.instance() == instance);
    CHECK(next.volume().mapped_bytes() == kept_page);
}

TEST_CASE("renamed exports: contents that are kept without an export are those of the new name") {
    LivingSupervisor supervisor;
    Life life(supervisor);
    REQUIRE(life.make({kept_export("one")}).problems.empty());
    const std::string instance = life.instance();
    REQUIRE(life.contents.prepare_rename(life.volume(), "two").has_value());
    life.renaming = Renaming{.from = "one", .to = "two"};
    const config::ExportOptions two = renamed(kept_export("one"), "two", instance);
    REQUIRE(life.make({two}).problems.empty());
    life.contents.rename(life.volume(), "two");
    life.renaming.reset();
    REQUIRE(life.make({}).problems.empty());
    life.settle(Clock::now());
    REQUIRE(life.make({kept_export("one"), two}).problems.empty());
    CHECK(life.instance(0) != instance);
    CHECK(life.instance(1) == instance);
}

TEST_CASE("renamed exports: contents get the name that a killed server has stored") {
    LivingSupervisor supervisor;
    std::string instance;
    {
        Life life(supervisor);
        REQUIRE(life.make({kept_export("one")}).problems.empty());
        life.fill(5);
        instance = life.instance();
        REQUIRE(life.contents.prepare_rename(life.volume(), "two").has_value());
    }
    // The configuration has an export of the earlier name now.
    const config::ExportList options{kept_export("one"),
                                     renamed(kept_export("one"), "two", instance)};
    for (int i = 0; i != 2; ++i) {
        Life next(supervisor);
        if (i == 0) CHECK(next.state_of("one") == "no export has them");
        next.contents.finish_renames(options);
        REQUIRE(next.make(options).refused.empty());
        CHECK(next.instance(0) != instance);
        CHECK(next.instance(1) == instance);
        CHECK(next.exports[1]->volume->mapped_bytes() == 5 * kept_page);
        next.settle(Clock::now());
        CHECK(next.contents.unused().empty());
    }
}

TEST_CASE("renamed exports: contents of a removed export keep their name") {
    LivingSupervisor supervisor;
    const std::string refusal =
        "contents of a removed export are kept under the name 'old'; free them by gpunbd kept "
        "--drop 'old', or choose another name";
    {
        Life life(supervisor);
        REQUIRE(life.make({kept_export("one"), kept_export("old")}).problems.empty());
        life.make({kept_export("one")});
        life.settle(Clock::now());
        CHECK(life.contents.prepare_rename(life.volume(), "old").error() == refusal);
    }
    Life next(supervisor);
    config::ExportOptions other = kept_export("one");
    other.keep = false;
    other.name = "other";
    REQUIRE(next.make({kept_export("one"), other}).problems.empty());
    CHECK(next.contents.prepare_rename(*next.exports[1]->volume, "old").error() == refusal);
    CHECK(next.contents.drop("old") == 1);
    CHECK(next.contents.prepare_rename(*next.exports[1]->volume, "old").has_value());
    CHECK(next.contents.prepare_rename(next.volume(), "old").has_value());
}

// As load_export_text() accepts it.
config::ExportOptions stored_export(const std::string& name) {
    config::ExportOptions options;
    options.name = name;
    options.size = config::Size{.bytes = 1 << 20};
    return options;
}

// The exports that the next server offers, and the number of descriptors that it leaves stored.
struct Offered {
    std::vector<config::ExportOptions> exports;
    std::size_t stored;
};
Offered next_server(LivingSupervisor& supervisor) {
    Inheritance next(supervisor);
    KeptExports exports(next.store, next.descriptors);
    Offered offered{exports.take_earlier(), 0};
    offered.stored = supervisor.names().size();
    return offered;
}

TEST_CASE("renamed exports: the next server offers one of the two names") {
    LivingSupervisor supervisor;
    Inheritance own(supervisor);
    KeptExports exports(own.store, own.descriptors);
    config::ExportOptions one = stored_export("one");
    one.keep = true;
    const config::ExportOptions two = renamed(one, "two", "abc");
    REQUIRE(exports.keep(one).has_value());
    const auto earlier = exports.copies();
    REQUIRE(earlier.size() == 1);
    REQUIRE(exports.rename("one", two).has_value());
    const auto check_two = [&] {
        const Offered offered = next_server(supervisor);
        REQUIRE(offered.exports.size() == 1);
        CHECK(offered.exports[0] == two);
        CHECK(offered.exports[0].provenance.renamed_contents == "abc");
        CHECK(offered.stored == 1);
    };
    check_two();
    // Killed before the removal of the earlier one.
    REQUIRE_FALSE(own.store.store(earlier[0].name, earlier[0].descriptor.get()));
    REQUIRE(supervisor.names().size() == 2);
    check_two();
    // A new export may have the earlier name.
    REQUIRE(exports.keep(one).has_value());
    CHECK(next_server(supervisor).exports.size() == 2);
    exports.drop("two");
    CHECK(next_server(supervisor).exports.at(0) == one);
}

TEST_CASE("kept options: changed ones are stored before the earlier ones are removed") {
    const PlayedSupervisor supervisor;
    PassedDescriptors none;
    DescriptorStore store(supervisor.way, std::nullopt, {});
    KeptExports exports(store, none);
    config::ExportOptions one = stored_export("one");
    for (const char* const name : {"one", "one", "two"}) {
        CAPTURE(name);
        const bool is_first = exports.copies().empty();
        const std::string earlier = is_first ? "" : exports.copies().at(0).name;
        one.name = name;
        REQUIRE(exports.rename("one", one).has_value());
        const auto stored = supervisor.next();
        REQUIRE(stored);
        CHECK(stored->text.starts_with("FDSTORE=1\n"));
        const auto removed = supervisor.next();
        CHECK(removed.has_value() != is_first);
        if (removed) CHECK(removed->text == "FDSTOREREMOVE=1\nFDNAME=" + earlier);
        CHECK_FALSE(supervisor.next());
    }
}

TEST_CASE("kept options: a successor gets those of the exports that there are") {
    LivingSupervisor supervisor;
    PassedDescriptors none;
    DescriptorStore store(supervisor.way, std::nullopt, {});
    KeptExports exports(store, none);
    REQUIRE(exports.keep(stored_export("one")).has_value());
    REQUIRE(exports.keep(stored_export("two")).has_value());
    exports.drop("one");
    exports.drop("one");
    REQUIRE(exports.copies().size() == 1);
    CHECK(supervisor.names() == std::vector{exports.copies()[0].name});
    exports.drop("two");
    CHECK(exports.copies().empty());
}

}  // namespace
}  // namespace gpunbd::server::test
