// Contents passed from one server to the next with a fake supervisor: which are taken over, which
// are rejected, and that nothing is freed without a request. Quiesced contents, as while another
// process takes them over: no slab is added or removed, by any thread or operation in progress.
#include "server/daemon/contents_service.hpp"
#include "server/exports/reload_report.hpp"
#include "storage/migration/migrator.hpp"
#include "tests/server/handover/kept_rig.hpp"
#include "tests/storage/pages/page_waiter.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using namespace std::chrono_literals;
using Clock = KeptContents::Clock;

bool has(const std::string& text, const std::string& part) {
    INFO(text);
    const bool found = contains(text, part) && text.find('\n') == std::string::npos;
    CHECK(found);
    return found;
}

TEST_CASE("kept contents: names") {
    const auto table = parse_contents_name("gpunbd/0123456789ab/table");
    REQUIRE(table);
    CHECK(table->id == "0123456789ab");
    CHECK(table->part == ContentsPart{});
    const std::vector<ContentsPart> others = {ContentsPart::table_of("ba9876543210"),
                                              {.kind = ContentsPart::Kind::directory},
                                              ContentsPart::slab_of(3, 4294967295)};
    const Names names = {"gpunbd/0123456789ab/table/ba9876543210", "gpunbd/0123456789ab/slabs",
                         "gpunbd/0123456789ab/3/4294967295"};
    for (std::size_t i = 0; i != others.size(); ++i) {
        CHECK(contents_name("0123456789ab", others[i]) == names[i]);
        const auto parsed = parse_contents_name(names[i]);
        REQUIRE(parsed);
        CHECK(parsed->part == others[i]);
    }
    for (const char* name :
         {"", "gpunbd/", "table", "gpunbd/0123456789ab", "gpunbd/0123456789ab/",
          "gpunbd/calibration", "gpunbd/0123456789a/table", "gpunbd/0123456789abc/table",
          "gpunbd/0123456789AB/table", "gpunbd/0123456789ab/1", "gpunbd/0123456789ab/1/",
          "gpunbd/0123456789ab//1", "gpunbd/0123456789ab/1/2/3", "gpunbd/0123456789ab/-1/2",
          "gpunbd/0123456789ab/1/ 2", "gpunbd/0123456789ab/table/", "gpunbd/0123456789ab/slabs/1",
          "gpunbd/0123456789ab/1/4294967296", "gpunbd/listen/0123456789abcdef"}) {
        CAPTURE(name);
        CHECK_FALSE(parse_contents_name(name));
    }
}

TEST_CASE("kept contents: the next server takes them over") {
    LivingSupervisor supervisor;
    std::string instance;
    Names names;
    {
        Life first(supervisor);
        REQUIRE(first.make({kept_export("one")}).problems.empty());
        instance = first.instance();
        first.fill(5);
        CHECK(first.state_of("one") == "in use");
        CHECK_FALSE(first.settle(Clock::now()));
        names = supervisor.names();
        CHECK(names.size() == 3);  // the table, and one slab per device
    }
    for (int i = 0; i != 2; ++i) {
        Life next(supervisor);
        CHECK(next.state_of("one") == "no export has them");
        REQUIRE(next.make({kept_export("one"), kept_export("two")}).refused.empty());
        CHECK(next.instance() == instance);
        CHECK(next.instance(1) != instance);
        CHECK(next.volume().mapped_bytes() == 5 * kept_page);
        CHECK(next.state_of("one") == "in use");
        next.make({kept_export("one")});
        CHECK(next.contents.drop("two") ==
              0);  // settle() has not decided yet whether an export has them
        next.settle(Clock::now());
        CHECK(next.contents.drop("two") == 1);
        CHECK(supervisor.names() == names);
    }
}

// Moves all pages of a server's first export away from memory:0, or back.
storage::Migration move_pages(Life& server, bool away) {
    const auto volume = server.exports.at(0)->volume;
    storage::Migrator migrator(
        server.device(0), [volume] { return storage::Migrator::Volumes{volume}; },
        {.channels = {.chunk_size = 64 << 10, .pinned = 1 << 20}, .threads = 1});
    migrator.start();
    std::promise<storage::Migration> done;
    const auto set = [&](const storage::Migration& result) { done.set_value(result); };
    away ? migrator.reclaim(~std::uint64_t{0}, set) : migrator.release(set);
    return done.get_future().get();
}

// `added`: the first server gets the spill memory by a reload, when the contents exist.
void take_over_spilled_pages(bool added) {
    CAPTURE(added);
    LivingSupervisor supervisor;
    config::ExportOptions one = kept_export("one");
    one.devices = {"memory:0"};
    one.layout = config::LayoutKind::linear;
    ServerOptions spilling;
    config::DeviceOptions home;
    home.id = "memory:0";
    home.spill = {{"memory:1", 1 << 30}};
    spilling.device_options = {home};
    {
        Life first(supervisor, added ? ServerOptions{} : spilling);
        REQUIRE(first.make({one}).problems.empty());
        first.fill(5);
        if (added) {
            CHECK(move_pages(first, true).moved.empty());
            move_pages(first, false);
            first.set_options(spilling.device_options);
            REQUIRE(first.make({one}).problems.empty());
        }
        CHECK(move_pages(first, true).error.empty());
        CHECK(first.volume().memory().at(1).mapped == 5 * kept_page);
        first.settle(Clock::now());
    }
    for (const ServerOptions& next_options : {spilling, ServerOptions{}}) {
        Life next(supervisor, next_options);
        REQUIRE(next.make({one}).refused.empty());
        next.settle(Clock::now());
        CHECK(next.volume().mapped_bytes() == 5 * kept_page);
        if (!next_options.device_options.empty()) continue;
        // Without spill memory in the configuration, pages only return.
        CHECK(next.volume().memory().at(1).mapped == 5 * kept_page);
        move_pages(next, false);
        CHECK(next.volume().memory().at(0).mapped == 5 * kept_page);
        // An empty slab may be used until it is released.
        while (next.volume().memory().at(1).allocated != 0) std::this_thread::yield();
        CHECK(move_pages(next, true).no_room);
    }
}

TEST_CASE("kept contents: pages in spill memory are taken over, and can return") {
    take_over_spilled_pages(false);
    take_over_spilled_pages(true);
}

// Contents of an earlier server. Returns their instance.
std::string leave_contents(LivingSupervisor& supervisor, std::uint64_t filled_pages) {
    Life first(supervisor);
    REQUIRE(first.make({kept_export("one")}).problems.empty());
    first.fill(filled_pages);
    return first.instance();
}

struct Refusal {
    const char* name;
    void (*spoil)(LivingSupervisor& supervisor, const Names& names);
    ServerOptions next;
    std::uint64_t pages;
    const char* reason;
};

TEST_CASE("kept contents: incomplete or unsuitable contents are rejected and stay") {
    const auto nothing = [](LivingSupervisor&, const Names&) {};
    const Refusal refusals[] = {
        {"another size",
         nothing,
         {},
         16,
         "they were made for size 512K, devices memory:0 memory:1"},
        {"another device",
         nothing,
         {.devices = 1},
         8,
         "they are on memory:1, which is not available"},
        {"a slab is missing",
         [](LivingSupervisor& supervisor, const Names& names) { supervisor.lose(names.at(1)); },
         {},
         8,
         "on memory:1: "},
        {"another slab is missing",
         [](LivingSupervisor& supervisor, const Names& names) { supervisor.lose(names.at(0)); },
         {},
         8,
         "on memory:0: "},
    };
    for (const Refusal& row : refusals) {
        CAPTURE(row.name);
        LivingSupervisor supervisor;
        leave_contents(supervisor, 8);
        row.spoil(supervisor, supervisor.names());
        const Names left = supervisor.names();
        // Repeated attempts change nothing.
        for (int i = 0; i != 2; ++i) {
            Life next(supervisor, row.next);
            const MadeExports made = next.make({kept_export("one", row.pages)});
            CHECK(made.problems.empty());
            CHECK(made.exports.empty());
            REQUIRE(made.refused.size() == 1);
            CHECK(made.refused[0].name == "one");
            has(made.refused[0].why, row.reason);
            has(made.refused[0].why, "to free them, run gpunbd kept --drop 'one'");
            has(next.state_of("one"), row.reason);
            CHECK_FALSE(next.settle(Clock::now()));  // no grace period is running
            CHECK(supervisor.names() == left);
        }
        Life last(supervisor, row.next);
        last.make({kept_export("one", row.pages)});
        CHECK(std::holds_alternative<Done>(drop_kept(last.contents, "one")));
        CHECK(supervisor.names().empty());
        CHECK(last.state_of("one") == "there is none");
    }
}

TEST_CASE("kept contents: an unreadable table is listed by its id, and stays") {
    const std::pair<off_t, const char*> rows[] = {{0, "it is not a page table of gpunbd"},
                                                  {9, "its format is "},
                                                  {12, "its checksum is wrong"},
                                                  {16, " bytes, and its header records "},
                                                  {56, "its checksum is wrong"}};
    for (const auto& [offset, reason] : rows) {
        CAPTURE(offset);
        LivingSupervisor supervisor;
        const std::string id = leave_contents(supervisor, 1).substr(0, 12);
        supervisor.corrupt("gpunbd/" + id + "/table", offset);
        const Names left = supervisor.names();
        Life next(supervisor);
        has(next.state_of(id), reason);
        // Their export is unknown: an export of that name gets new contents.
        REQUIRE(next.make({kept_export("one")}).refused.empty());
        CHECK(next.instance().substr(0, 12) != id);
        CHECK_FALSE(next.settle(Clock::now()));
        const Names now = supervisor.names();
        CHECK(std::includes(now.begin(), now.end(), left.begin(), left.end()));
        const std::vector<KeptStatus> listed = list_kept(next.contents).contents;
        CHECK(std::any_of(listed.begin(), listed.end(), [&](const KeptStatus& each) {
            return each.name == id && each.instance.empty() && !each.size && !each.made;
        }));
        CHECK(next.contents.drop(id) == 1);
        CHECK(next.state_of(id) == "there is none");
        CHECK(next.state_of("one") == "in use");
    }
}

TEST_CASE("kept contents: of two with one name, the suitable ones are taken over") {
    LivingSupervisor supervisor;
    std::string small;
    std::string large;
    {
        Life first(supervisor);
        REQUIRE(first.make({kept_export("one")}).problems.empty());
        small = first.instance();
        REQUIRE(first.make({kept_export("one", 16)}).problems.empty());
        large = first.instance();
        first.settle(Clock::now());  // within the grace period
    }
    for (const std::uint64_t pages : {8, 16, 8}) {
        Life next(supervisor);
        REQUIRE(next.make({kept_export("one", pages)}).refused.empty());
        CHECK(next.instance() == (pages == 8 ? small : large));
        CHECK(next.contents.summaries().size() == 2);
    }
    Life third(supervisor);
    const MadeExports made = third.make({kept_export("one", 32)});
    REQUIRE(made.refused.size() == 1);
    has(made.refused[0].why, "they were made for");
    CHECK(third.contents.drop("one") == 2);
    CHECK(supervisor.names().empty());
}

TEST_CASE("kept contents: of another size than in the options, they can be resized to that") {
    LivingSupervisor supervisor;
    {
        Life first(supervisor);
        REQUIRE(first.make({kept_export("one")}).problems.empty());
        REQUIRE(first.volume().resize(16 * kept_page, {}, 8 * kept_page) == "");
    }
    Life next(supervisor);
    REQUIRE(next.make({kept_export("one")}).refused.empty());
    CHECK(next.exports.at(0)->info.size == 16 * kept_page);
    REQUIRE(next.volume().resize(8 * kept_page, {}, 8 * kept_page) == "");
    REQUIRE(next.make({kept_export("one")}).problems.empty());
    CHECK(next.exports.at(0)->info.size == 8 * kept_page);
}

// A server with three pages of the export "one", or the next one, which does not offer it yet; and
// the instance of the contents.
std::pair<std::unique_ptr<Life>, std::string> filled_server(LivingSupervisor& supervisor,
                                                            bool next) {
    auto server = std::make_unique<Life>(supervisor);
    REQUIRE(server->make({kept_export("one")}).problems.empty());
    std::string instance = server->instance();
    server->fill(3);
    if (next) {
        server.reset();
        server = std::make_unique<Life>(supervisor);
    }
    return {std::move(server), std::move(instance)};
}

TEST_CASE("kept contents: freed after the grace period if no export has them") {
    for (const bool by_the_next : {false, true}) {
        CAPTURE(by_the_next);
        LivingSupervisor supervisor;
        const auto [server, instance] = filled_server(supervisor, by_the_next);
        const Clock::time_point start = Clock::now();
        server->make({});
        CHECK(server->settle(start) == start + 60s);
        CHECK(server->settle(start + 59s) == start + 60s);
        CHECK(server->state_of("one") == "no export has them");

        // The export is added again with all its contents, and removed again with the full grace
        // period.
        REQUIRE(server->make({kept_export("one")}).refused.empty());
        CHECK_FALSE(server->settle(start + 59s));
        CHECK(server->instance() == instance);
        CHECK(server->volume().mapped_bytes() == 3 * kept_page);
        server->make({});
        CHECK(server->settle(start + 59s) == start + 119s);
        CHECK_FALSE(supervisor.names().empty());
        CHECK_FALSE(server->settle(start + 119s));
        CHECK(supervisor.names().empty());
        CHECK(server->contents.summaries().empty());
    }
}

TEST_CASE("kept contents: freed after the grace period if their device is missing, too") {
    LivingSupervisor supervisor;
    leave_contents(supervisor, 3);
    Life next(supervisor, {.devices = 1});
    next.make({});
    const Clock::time_point start = Clock::now();
    CHECK(next.settle(start) == start + 60s);
    has(next.state_of("one"), "they are on memory:1, which is not available");
    CHECK(next.settle(start + 59s) == start + 60s);
    CHECK_FALSE(next.settle(start + 60s));
    CHECK(supervisor.names().empty());
}

TEST_CASE("kept contents: for another program, those are freed first that would end first") {
    LivingSupervisor supervisor;
    Life server(supervisor);
    const config::ExportOptions one = kept_export("one");
    const config::ExportOptions two = kept_export("two");
    REQUIRE(server.make({one}).problems.empty());
    server.fill(2);
    REQUIRE(server.make({two, one}).problems.empty());
    server.fill(2);
    const Clock::time_point start = Clock::now();
    REQUIRE(server.make({two}).problems.empty());
    server.settle(start);
    REQUIRE(server.make({}).problems.empty());
    server.settle(start + 10s);
    for (const char* const left : {"two", "none"}) {
        CHECK(server.contents.drop_unused(server.device()));
        const auto unused = server.contents.unused();
        CHECK((unused.empty() ? "none" : unused.at(0).name) == left);
    }
    CHECK_FALSE(server.contents.drop_unused(server.device()));
}

TEST_CASE("kept contents: a configuration that is rejected later does not free them") {
    config::ExportOptions impossible = kept_export("two");
    impossible.devices = {"memory:7"};
    impossible.layout = config::LayoutKind::linear;
    impossible.keep = false;
    for (const bool of_an_earlier_server : {true, false}) {
        CAPTURE(of_an_earlier_server);
        LivingSupervisor supervisor;
        const auto [server, instance] = filled_server(supervisor, of_an_earlier_server);
        server->make({});
        const Clock::time_point start = Clock::now();
        CHECK(server->settle(start) == start + 60s);
        const Names names = supervisor.names();
        // The configuration has the export, and its contents are in use meanwhile.
        CHECK(server->make({kept_export("one"), impossible}).problems.size() == 1);
        CHECK(server->settle(start + 10s) == start + 70s);
        CHECK(supervisor.names() == names);
        CHECK(server->state_of("one") == "no export has them");
        REQUIRE(server->make({kept_export("one")}).refused.empty());
        CHECK(server->instance() == instance);
        CHECK(server->volume().mapped_bytes() == 3 * kept_page);
    }
}

TEST_CASE(
    "kept contents: a restore that did not end is made again, and nothing is made of it before") {
    LivingSupervisor supervisor;
    config::ExportOptions restored = kept_export("one");
    restored.restore = "/an/image";
    config::ExportOptions clone;
    clone.name = "clone";
    clone.clone_of = "one";
    clone.keep = true;
    {
        Life first(supervisor);
        first.restores_later = true;
        MadeExports made = first.make({restored, clone, kept_export("other")});
        CHECK(made.problems.empty());
        REQUIRE(made.unfilled.size() == 1);
        CHECK(made.unfilled[0].exported == first.exports.at(0));
        CHECK(first.exports[0]->use->enter("a").refusal == "the export is being restored");
        CHECK(first.exports[1]->use->enter("a").lease);
        REQUIRE(first.refused.size() == 1);
        has(first.refused[0].why,
            "export 'clone': export 'one' is being restored; try again later");
        CHECK(first.state_of("one") == "being restored");
        first.fill(3);
        // A reload meanwhile neither starts a second restore nor opens the export.
        CHECK(first.make({restored, clone, kept_export("other")}).unfilled.empty());
        first.settle(Clock::now());
        CHECK(first.exports[0]->use->enter("a").lease == nullptr);
    }
    Life next(supervisor);
    CHECK(next.state_of("one") == "there is none");
    CHECK(next.state_of("other") == "no export has them");
    next.restores_later = true;
    MadeExports made = next.make({restored, clone, kept_export("other")});
    REQUIRE(made.unfilled.size() == 1);
    CHECK(next.volume().mapped_bytes() == 0);
    SUBCASE("it succeeds") {
        next.volume().set_complete();
        made.unfilled.clear();
        CHECK(next.make({restored, clone, kept_export("other")}).refused.empty());
        CHECK(next.exports[0]->use->enter("a").lease);
        CHECK(next.exports.size() == 3);
    }
    SUBCASE("it fails") {
        next.not_restored["one"] = "no such file";
        CHECK(next.make({restored, clone, kept_export("other")}).unfilled.empty());
        REQUIRE(next.refused.size() == 2);
        CHECK(next.refused[0].why == "no such file");
        CHECK_FALSE(next.settle(Clock::now()));
        CHECK(next.state_of("one") == "there is none");
    }
}

TEST_CASE("kept contents: after a restore that did not end, earlier contents of the name stay") {
    LivingSupervisor supervisor;
    const config::ExportOptions wanted = kept_export("one", 16);
    std::string earlier;
    {
        Life first(supervisor);
        REQUIRE(first.make({kept_export("one")}).problems.empty());
        first.fill(3);
        earlier = first.instance();
        REQUIRE(first.make({}).problems.empty());
        first.settle(Clock::now());
        REQUIRE(first.make({wanted}).refused.empty());
        CHECK_FALSE(first.volume().set_incomplete());
    }
    Life next(supervisor);
    REQUIRE(next.make({wanted}).refused.empty());
    CHECK(next.volume().mapped_bytes() == 0);
    CHECK(next.settle(Clock::now()));
    REQUIRE(next.make({}).problems.empty());
    REQUIRE(next.make({kept_export("one")}).refused.empty());
    CHECK(next.instance() == earlier);
}

TEST_CASE("kept contents: without keep they end with the server, even if keep is set again") {
    LivingSupervisor supervisor;
    Life server(supervisor);
    REQUIRE(server.make({kept_export("one")}).problems.empty());
    server.fill(2);
    const auto before = server.exports;
    CHECK(before.front()->contents_outlive_server());
    config::ExportOptions plain = kept_export("one");
    plain.keep = false;
    REQUIRE(server.make({plain}).problems.empty());
    CHECK_FALSE(server.settle(Clock::now()));
    CHECK(supervisor.names().empty());
    CHECK(server.contents.copies().empty());
    CHECK(server.volume().mapped_bytes() == 2 * kept_page);
    server.fill(8);  // also for later contents
    CHECK(supervisor.names().empty());
    CHECK(server.contents.summaries().empty());

    const auto forgotten = server.exports;
    REQUIRE(server.make({kept_export("one")}).problems.empty());
    CHECK(&server.volume() == before.front()->volume.get());
    CHECK_FALSE(server.exports.front()->contents_outlive_server());
    CHECK_FALSE(before.front()->contents_outlive_server());  // for sessions that still have it
    const auto lines = report_exports(forgotten, server.exports, Unchanged::report);
    REQUIRE(lines.size() == 1);
    CHECK(lines.front().warning);
    has(lines.front().text, "will be lost at the end of this server");
}

TEST_CASE("kept contents: contents in use are not dropped") {
    LivingSupervisor supervisor;
    Life server(supervisor);
    REQUIRE(server.make({kept_export("one")}).problems.empty());
    const Names before = supervisor.names();
    has(std::get<NotDone>(drop_kept(server.contents, "one")).why, "export 'one' uses them");
    const auto none = std::get<NotDone>(drop_kept(server.contents, "two"));
    has(none.why, "nothing is kept under the name");
    CHECK(none.unknown);
    CHECK(supervisor.names() == before);
}

TEST_CASE("kept contents: a full or unresponsive store keeps nothing partially") {
    config::ExportOptions filled = kept_export("one");
    filled.provision = config::Provision::full;
    for (const bool answers : {true, false}) {
        CAPTURE(answers);
        LivingSupervisor supervisor;
        ServerOptions options{.capacity = 2};       // for the table, and one of two slabs
        if (!answers) options = {.patience = 10s};  // sufficient for a store that answers
        Life server(supervisor, options);
        supervisor.answers = answers;
        const MadeExports made = server.make({filled});
        CHECK(made.exports.empty());
        CHECK(made.problems.size() == 1);
        CHECK(server.contents.summaries().empty());
        CHECK(supervisor.names().empty());
        if (!answers) CHECK(server.make({filled}).problems.empty());
    }
}

TEST_CASE("kept contents: a write fails if its new slab cannot be stored") {
    LivingSupervisor supervisor;
    Life server(supervisor, {.capacity = 1});
    REQUIRE(server.make({kept_export("one")}).problems.empty());
    storage::PageRef held;
    CHECK(server.volume().map(0, held) != storage::Status::ok);
    CHECK(supervisor.names().size() == 1);
}

// With AddressSanitizer it also detects calls of destroyed kept parts.
TEST_CASE("kept contents: a volume that outlives its freed contents ends correctly") {
    LivingSupervisor supervisor;
    Life server(supervisor);
    constexpr std::uint64_t slabs = 6;
    REQUIRE(server.make({export_of_slabs("one", slabs)}).problems.empty());
    server.fill(slabs);
    auto client = server.exports.at(0)->volume;
    const Clock::time_point start = Clock::now();
    server.settle(start);
    server.make({});
    CHECK(server.settle(start) == start + 60s);
    CHECK_FALSE(server.settle(start + 60s));
    CHECK(supervisor.names().empty());

    server.device().releasing.close();
    for (std::uint64_t page = 0; page != slabs; ++page) client->unmap(page);
    server.device().releasing.wait_for_one();
    client.reset();  // its end waits for the slabs that are being released
    CHECK_FALSE(server.settle(start + 61s));
    server.device().releasing.open();
}

TEST_CASE("kept contents: a server ends with contents that no export has") {
    LivingSupervisor supervisor;
    Names names;
    for (const bool settled : {false, true}) {
        CAPTURE(settled);
        Life server(supervisor);
        REQUIRE(server.make({kept_export("one")}).problems.empty());
        REQUIRE(server.make({kept_export("one", 16)}).problems.empty());
        if (settled) server.settle(Clock::now());
        server.fill(3);
        server.contents.quiesce();  // so that no slab is allocated ahead
        names = supervisor.names();
        CHECK(names.size() >= 4);  // two tables, two slabs
    }
    CHECK(supervisor.names() == names);
}

using storage::test::TestWaiter;

constexpr std::uint64_t resting_slabs = 4;

void unmap_all(storage::Volume& volume) {
    for (std::uint64_t page = 0; page != resting_slabs; ++page) volume.unmap(page);
}

Names names_of(const std::vector<KeptContents::Copy>& copies) {
    Names names;
    for (const auto& each : copies) names.push_back(each.name);
    std::sort(names.begin(), names.end());
    return names;
}

PassedDescriptors handed_over(std::vector<KeptContents::Copy> copies) {
    PassedDescriptors all;
    for (auto& each : copies) all.add(each.name, std::move(each.descriptor));
    return all;
}

TEST_CASE("kept contents: while quiesced no slab is removed; afterwards it is") {
    LivingSupervisor supervisor;
    {
        Life server(supervisor);
        REQUIRE(server.make({export_of_slabs("one", resting_slabs)}).problems.empty());
        server.fill(resting_slabs);
        server.settle(Clock::now());
        server.contents.quiesce();
        unmap_all(server.volume());
        CHECK(server.device().memory.slabs() == resting_slabs);
        CHECK(supervisor.names().size() == 1 + resting_slabs);
    }
    // The next server has them, quiesced from the beginning.
    Life next(supervisor);
    next.contents.quiesce();
    REQUIRE(next.make({export_of_slabs("one", resting_slabs)}).refused.empty());
    CHECK(next.volume().allocated_bytes() == resting_slabs * kept_slab);
    CHECK(supervisor.names().size() == 1 + resting_slabs);
    next.contents.resume();
    while (next.device().memory.slabs() != 1) std::this_thread::yield();
    next.volume().quiesce();  // after the last message
    CHECK(supervisor.names().size() == 2);
}

TEST_CASE("kept contents: requests while quiesced wait, also for contents made meanwhile") {
    LivingSupervisor supervisor;
    Life server(supervisor);
    REQUIRE(server.make({export_of_slabs("one", 2)}).problems.empty());
    server.settle(Clock::now());
    server.contents.quiesce();
    REQUIRE(server.make({export_of_slabs("one", 2), export_of_slabs("two", 2)}).problems.empty());
    const Names names = supervisor.names();
    CHECK(names.size() == 2);  // tables
    TestWaiter first;
    TestWaiter second;
    storage::PageRef one;
    storage::PageRef two;
    REQUIRE_FALSE(first.try_acquire(*server.exports.at(0)->volume, 0, one).has_value());
    REQUIRE_FALSE(second.try_acquire(*server.exports.at(1)->volume, 0, two).has_value());
    for (int i = 0; i != 50 && server.device().memory.slabs() == 0; ++i) {
        std::this_thread::sleep_for(1ms);  // time for an early change, which would be an error
    }
    CHECK(server.device().memory.slabs() == 0);
    CHECK(names_of(server.contents.copies()) == names);
    CHECK(first.in_progress());
    CHECK(second.in_progress());
    server.contents.resume();
    CHECK(first.acquire(*server.exports.at(0)->volume, 0, one) == storage::Status::ok);
    CHECK(second.acquire(*server.exports.at(1)->volume, 0, two) == storage::Status::ok);
}

// The client's write waits in this process until the slab is allocated. The slab is part of the
// hand-over: in the table, with the supervisor, and among the copies.
TEST_CASE("kept contents: quiesce() waits for a slab that is being allocated") {
    LivingSupervisor supervisor;
    Life server(supervisor);
    const config::ExportOptions options = export_of_slabs("one", resting_slabs);
    REQUIRE(server.make({options}).problems.empty());
    server.settle(Clock::now());
    server.device().allocating.close();
    TestWaiter waiter;
    storage::PageRef page;
    REQUIRE_FALSE(waiter.try_acquire(server.volume(), 0, page).has_value());
    server.device().allocating.wait_for_one();
    std::atomic<bool> rests{false};
    std::vector<KeptContents::Copy> copies;
    std::thread upgrade([&] {
        server.contents.quiesce();
        rests = true;
        copies = server.contents.copies();
    });
    for (int i = 0; i != 50 && !rests; ++i)
        std::this_thread::sleep_for(1ms);  // time for an early return, which would be an error
    CHECK_FALSE(rests);
    server.device().allocating.open();
    upgrade.join();
    CHECK(waiter.answer() == storage::Status::ok);
    const Names kept = supervisor.names();
    CHECK(kept.size() >= 2);
    CHECK(names_of(copies) == kept);

    // The next process: completes what was cancelled here.
    Life next(handed_over(std::move(copies)), supervisor.way, {.devices = 1});
    next.contents.quiesce();
    REQUIRE(next.make({options}).refused.empty());
    REQUIRE(next.exports.size() == 1);
    CHECK(next.volume().mapped(0));
    CHECK(next.volume().allocated_bytes() == (kept.size() - 1) * kept_slab);
}

}  // namespace
}  // namespace gpunbd::server::test
