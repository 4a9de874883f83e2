#include "server/daemon/reclaim_service.hpp"

#include "tests/server/supervisor/living_supervisor.hpp"
#include "tests/storage/pages/latch_device.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

constexpr std::uint64_t reclaimed_page = 64 << 10;
constexpr std::uint64_t reclaimed_pages = 8;

// The outcome of what `begin` does with a completion.
template <typename Begin>
Outcome outcome_of(const Begin& begin) {
    const auto outcome = std::make_shared<std::promise<Outcome>>();
    auto future = outcome->get_future();
    begin(Completion([outcome](Outcome its) { outcome->set_value(std::move(its)); }));
    return future.get();
}

// A server with an export of one slab, whose device has spill memory.
struct ReclaimRig {
    ReclaimRig() {
        context.kept.contents =
            std::make_unique<KeptContents>(inheritance.store, inheritance.descriptors);
        context.exports.replace({make_export("a")});
        context.lifecycle.enter(Phase::serving);
    }

    // With all of its pages.
    std::shared_ptr<storage::Volume> make_volume(const storage::KeepOptions& keep) {
        auto volume = context.disposal.shared(checked(storage::Volume::create(
            {.size = reclaimed_pages * reclaimed_page, .page_size = reclaimed_page}, {&home}, {},
            keep, {{.home = 0, .device = &spill, .budget = &budget}})));
        for (std::uint64_t page = 0; page != reclaimed_pages; ++page) {
            storage::PageRef held;
            REQUIRE(volume->map(page, held) == storage::Status::ok);
        }
        return volume;
    }
    std::shared_ptr<Export> make_export(const std::string& name) {
        auto served = std::make_shared<Export>();
        served->info.name = name;
        served->volume = make_volume({});
        return served;
    }
    std::uint64_t bytes_at_home() {
        return context.exports.snapshot()->front()->volume->memory().front().mapped;
    }
    Outcome reclaim(const ReclaimRequest& request = {}) {
        return outcome_of(
            [&](const Completion& completion) { service.reclaim(request, completion); });
    }
    Outcome end(const EndOfReclaim& request = {}) {
        return outcome_of([&](const Completion& completion) { service.end(request, completion); });
    }
    DeviceStatus status() {
        DeviceStatus status{.id = home.info().id, .available = home.available()};
        status.allocated = home.budget().used();
        service.add_to(status);
        return status;
    }

    storage::test::LatchDevice home{0, {}};
    storage::test::LatchDevice spill{1, {}};
    storage::SlabBudget budget;
    LivingSupervisor supervisor;
    Inheritance inheritance{supervisor};
    ServerContext context{{}, {}};
    ReclaimService service{context};
};

constexpr std::uint64_t all_pages = reclaimed_pages * reclaimed_page;

TEST_CASE("ReclaimService: while another server takes over, no page moves") {
    ReclaimRig rig;
    rig.service.start();
    const auto is_served = [&] {
        DeviceStatus status{.id = rig.home.info().id};
        rig.service.add_to(status);
        return status.reclaimable;
    };
    CHECK(std::holds_alternative<Reclaimed>(rig.reclaim()));
    CHECK(rig.bytes_at_home() == 0);

    rig.context.lifecycle.enter(Phase::handing_over);
    rig.service.pause();
    rig.service.resume();  // as after a lost event
    CHECK_FALSE(is_served());
    CHECK(std::holds_alternative<NotDone>(rig.end()));
    CHECK(rig.bytes_at_home() == 0);

    rig.context.lifecycle.enter(Phase::serving);
    rig.service.resume();
    CHECK(is_served());
    CHECK(std::holds_alternative<Reclaimed>(rig.end()));
    CHECK(rig.bytes_at_home() == all_pages);
    rig.service.stop();
}

ReclaimStatus only_device(const Outcome& outcome) {
    REQUIRE(std::holds_alternative<Reclaimed>(outcome));
    return std::get<Reclaimed>(outcome).devices.at(0);
}

TEST_CASE("ReclaimService: each reclaim is a claim, and ends without the others") {
    ReclaimRig rig;
    const auto b = rig.make_volume({});
    const auto c = rig.make_volume({});
    rig.service.start();
    CHECK(only_device(rig.reclaim({.bytes = all_pages, .owner = "first"})).claim == 1);
    const ReclaimStatus second = only_device(
        rig.reclaim({.bytes = all_pages, .duration = std::chrono::hours(1), .owner = "second"}));
    CHECK(second.claim == 2);
    CHECK(second.limit == all_pages);
    DeviceStatus status = rig.status();
    REQUIRE(status.claims.size() == 2);
    CHECK(status.claims[0].owner == "first");
    CHECK_FALSE(status.claims[0].ends_in);
    REQUIRE(status.claims[1].ends_in);
    CHECK(*status.claims[1].ends_in + status.claims[1].age == doctest::Approx(3600));
    CHECK(status.available == 0);  // of what is free, nothing is the exports'
    CHECK(status.withheld == rig.home.available());

    const ReclaimStatus ended = only_device(rig.end({.claim = 2}));
    CHECK(ended.limit == 2 * all_pages);
    CHECK(ended.complete());  // the other pages stay for the first claim
    status = rig.status();
    REQUIRE(status.claims.size() == 1);
    CHECK(status.claims[0].id == 1);
    rig.context.io.poll();
    rig.context.io.restart();
    CHECK(std::holds_alternative<NotDone>(rig.end({.claim = 2})));
    CHECK_FALSE(only_device(rig.end()).limit);
    CHECK(rig.status().claims.empty());
    CHECK(rig.home.budget().used() == 3 * all_pages);
    rig.service.stop();
}

TEST_CASE("ReclaimService: a claim that falls short has what was given back, or ends") {
    ReclaimRig rig;
    const auto b = rig.make_volume({});
    const auto c = rig.make_volume({});
    rig.budget.set_limit(all_pages);
    rig.service.start();
    const ReclaimStatus status = only_device(rig.reclaim({.bytes = std::uint64_t{1} << 40}));
    CHECK(status.wanted == 3 * all_pages);
    CHECK(status.released == all_pages);
    CHECK_FALSE(status.complete());
    CHECK(status.limit == 2 * all_pages);
    CHECK(rig.status().claims.at(0).bytes == all_pages);
    const ReclaimStatus none = only_device(rig.reclaim({.bytes = all_pages}));
    CHECK(none.released == 0);
    CHECK_FALSE(none.claim);
    CHECK(rig.status().limit == 2 * all_pages);
    CHECK(rig.status().claims.size() == 1);
    rig.end();
    CHECK_FALSE(rig.status().limit);
    rig.service.stop();
}

TEST_CASE("ReclaimService: the end of a claim gives back what the limit was before it") {
    ReclaimRig rig;
    std::vector<std::shared_ptr<storage::Volume>> volumes{
        rig.context.exports.snapshot()->front()->volume};
    for (int i = 0; i != 3; ++i) volumes.push_back(rig.make_volume({}));
    rig.service.start();
    CHECK(only_device(rig.reclaim({.bytes = all_pages})).limit == 3 * all_pages);
    std::erase_if(volumes, [](const auto& each) { return each->memory().front().mapped == 0; });
    REQUIRE(volumes.size() == 3);
    volumes.resize(1);
    // The threads of the device may still have them.
    while (rig.home.budget().used() != all_pages) std::this_thread::yield();
    const ReclaimStatus second = only_device(rig.reclaim({.bytes = all_pages}));
    REQUIRE(second.claim);
    CHECK(second.limit == 0);
    CHECK(only_device(rig.end({.claim = second.claim})).limit == 3 * all_pages);
    rig.service.stop();
}

TEST_CASE("Reclaimer: a claim that had not begun before the end of the threads holds no device") {
    ReclaimRig rig;
    std::atomic<bool> begun{false};
    std::atomic<bool> ends{false};
    std::set<std::uint64_t> in_effect;
    Reclaimer reclaimer([&] { return rig.context.disposal.volumes(); },
                        {.channels = {.chunk_size = 64 << 10, .pinned = 1 << 20},
                         .threads = 1,
                         .drop_unused = [&](const storage::Device&) {
                             begun = true;
                             while (!ends) std::this_thread::yield();
                             return false;
                         }});
    reclaimer.update({});
    const std::string device = rig.home.info().id;
    for (const std::uint64_t id : {1, 2}) {
        REQUIRE(reclaimer.reclaim(device, {.id = id, .asked = all_pages},
                                  [&in_effect](const ReclaimStatus& status) {
                                      if (status.claim) in_effect.insert(*status.claim);
                                  }));
        while (!begun) std::this_thread::yield();
    }
    std::thread stopping([&] { reclaimer.stop(); });
    while (!reclaimer.devices().empty()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until the migrator has to stop
    ends = true;
    stopping.join();
    // None, one or both, depending on which thread was faster.
    CHECK(reclaimer.claims_on(device) == in_effect);
}

TEST_CASE("ReclaimService: contents that no export has are freed first, unless they are refused") {
    ReclaimRig rig;
    KeptContents& contents = *rig.context.kept.contents;
    config::ExportOptions removed;
    removed.name = "removed";
    auto made = contents.make(
        removed, [&](const storage::KeepOptions& keep) { return rig.make_volume(keep); });
    std::vector<KeptContents::Offered> offered{
        {"a", false, rig.context.exports.snapshot()->front()->volume}};
    bool is_freed = true;
    SUBCASE("its export was removed") {}
    SUBCASE("its export is refused") {
        offered.push_back({"removed", true, nullptr});
        is_freed = false;
    }
    contents.settle(offered, std::chrono::minutes(5), KeptContents::Clock::now());
    made.reset();
    REQUIRE(contents.unused().size() == 1);
    rig.service.start();
    const ReclaimStatus status = only_device(rig.reclaim({.bytes = all_pages}));
    CHECK(status.complete());
    CHECK(status.released == all_pages);
    CHECK(status.freed == (is_freed ? all_pages : 0));
    CHECK(contents.unused().empty() == is_freed);
    CHECK(rig.home.budget().used() == all_pages);
    if (is_freed) CHECK(rig.bytes_at_home() == all_pages);
    rig.service.stop();
}

}  // namespace
}  // namespace gpunbd::server::test
