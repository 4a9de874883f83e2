#include "server/daemon/reclaim_service.hpp"

#include <doctest/doctest.h>

#include <future>
#include <memory>
#include <utility>
#include <variant>

#include "tests/storage/pages/latch_device.hpp"

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

TEST_CASE("ReclaimService: while another server takes over, no page moves") {
    storage::test::LatchDevice home(0, {});
    storage::test::LatchDevice spill(1, {});
    storage::SlabBudget budget;
    ServerContext context({}, {});
    auto made = storage::Volume::create(
        {.size = reclaimed_pages * reclaimed_page, .page_size = reclaimed_page}, {&home}, {}, {},
        {{.home = 0, .device = &spill, .budget = &budget}});
    REQUIRE(std::holds_alternative<std::unique_ptr<storage::Volume>>(made));
    auto served = std::make_shared<Export>();
    served->volume = std::move(std::get<std::unique_ptr<storage::Volume>>(made));
    storage::Volume& volume = *served->volume;
    for (std::uint64_t page = 0; page != reclaimed_pages; ++page) {
        storage::PageRef held;
        REQUIRE(volume.map(page, held) == storage::Status::ok);
    }
    context.exports.replace({std::move(served)});
    context.lifecycle.phase = Phase::serving;

    ReclaimService service(context);
    service.start();
    const auto is_served = [&] {
        DeviceStatus status{.id = home.info().id};
        service.add_to(status);
        return status.reclaimable;
    };
    const auto bytes_at_home = [&] { return volume.memory().front().mapped; };
    const auto reclaim = [&](const Completion& completion) { service.reclaim({}, completion); };
    const auto end = [&](const Completion& completion) { service.end("", completion); };
    CHECK(std::holds_alternative<Reclaimed>(outcome_of(reclaim)));
    CHECK(bytes_at_home() == 0);

    context.lifecycle.phase = Phase::handing_over;
    service.pause();
    service.resume();  // as after a lost event
    CHECK_FALSE(is_served());
    CHECK(std::holds_alternative<NotDone>(outcome_of(end)));
    CHECK(bytes_at_home() == 0);

    context.lifecycle.phase = Phase::serving;
    service.resume();
    CHECK(is_served());
    CHECK(std::holds_alternative<Reclaimed>(outcome_of(end)));
    CHECK(bytes_at_home() == reclaimed_pages * reclaimed_page);
    service.stop();
}

}  // namespace
}  // namespace gpunbd::server::test
