// What a driver undoes late, from one server to the next; pipes stand for its files.
#include "server/contents/kept_mappings.hpp"

#include <doctest/doctest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "tests/server/living_supervisor.hpp"

namespace gpunbd::server::test {
namespace {

const std::string mappings_name = "gpunbd/mappings";

// A file, and whether a copy of it is open anywhere.
class DriverFile {
 public:
    DriverFile() {
        std::array<int, 2> ends{};
        REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
        watched_.emplace(ends[0]);
        file_.emplace(ends[1]);
    }
    int get() const { return file_->get(); }
    void close() { file_.reset(); }
    bool is_open() const {
        pollfd look{.fd = watched_->get(), .events = 0, .revents = 0};
        return ::poll(&look, 1, 0) == 0;
    }

 private:
    std::optional<OwnedFd> watched_;
    std::optional<OwnedFd> file_;
};

TEST_CASE("kept mappings: the next server undoes them, when it is told to") {
    LivingSupervisor supervisor;
    const NotifySocket way = supervisor.way();
    DriverFile first;
    DriverFile second;
    {
        HandedOver none = supervisor.hand_over(way);
        DescriptorStore store(way, std::nullopt, none.names());
        KeptMappings mappings(store, none);
        CHECK(mappings.take_left().empty());
        mappings.keep({first.get(), second.get()});
        mappings.keep({first.get(), second.get()});
        CHECK(supervisor.names(way) == std::vector<std::string>{mappings_name, mappings_name});
    }
    first.close();  // its server is killed
    second.close();

    HandedOver handed_over = supervisor.hand_over(way);
    DescriptorStore store(way, std::nullopt, handed_over.names());
    const DriverFile own;
    std::atomic<bool> undone{false};
    {
        KeptMappings mappings(store, handed_over);
        CHECK(handed_over.names().empty());
        mappings.keep({own.get()});
        CHECK(supervisor.names(way) == std::vector<std::string>{mappings_name});
        CHECK(first.is_open());  // the supervisor was not the one that closed it last
        CHECK(second.is_open());
        auto left = std::make_shared<KeptMappings::Files>(mappings.take_left());
        CHECK(left->size() == 2);
        mappings.undo(std::move(left),
                      [&] { undone = !first.is_open() && !second.is_open() && own.is_open(); });
        CHECK(mappings.take_left().empty());
    }
    CHECK(undone);
}

TEST_CASE("kept mappings: where there is no room for two they are undone at once") {
    LivingSupervisor supervisor;
    const NotifySocket way = supervisor.way();
    DriverFile file;
    {
        HandedOver none = supervisor.hand_over(way);
        DescriptorStore store(way, std::nullopt, none.names());
        KeptMappings(store, none).keep({file.get()});
    }
    HandedOver handed_over = supervisor.hand_over(way);
    file.close();
    DescriptorStore store(way, std::nullopt, handed_over.names());
    KeptMappings mappings(store, handed_over);
    CHECK(file.is_open());
    mappings.undo_now();
    CHECK(!file.is_open());
    CHECK(supervisor.names(way).empty());
    CHECK(mappings.take_left().empty());
}

TEST_CASE("kept mappings: without any, what is to follow does so at once") {
    LivingSupervisor supervisor;
    const NotifySocket way = supervisor.way();
    HandedOver none = supervisor.hand_over(way);
    DescriptorStore store(way, std::nullopt, none.names());
    KeptMappings mappings(store, none);
    bool followed = false;
    mappings.undo(std::make_shared<KeptMappings::Files>(), [&] { followed = true; });
    CHECK(followed);
}

TEST_CASE("kept mappings: who keeps nothing any more leaves nothing with the supervisor") {
    LivingSupervisor supervisor;
    const NotifySocket way = supervisor.way();
    const DriverFile file;
    HandedOver none = supervisor.hand_over(way);
    DescriptorStore store(way, std::nullopt, none.names());
    KeptMappings(store, none).keep({file.get()});
    CHECK(supervisor.names(way).size() == 1);
    KeptMappings(store, none).keep({});
    CHECK(supervisor.names(way).empty());
}

TEST_CASE("kept mappings: a supervisor that has no room is said once, and all goes on") {
    LivingSupervisor supervisor;
    const NotifySocket way = supervisor.way();
    const DriverFile one;
    const DriverFile two;
    HandedOver none = supervisor.hand_over(way);
    DescriptorStore store(way, 1, none.names());
    KeptMappings mappings(store, none);
    mappings.keep({one.get(), two.get()});
    CHECK(supervisor.names(way).size() == 1);
}

}  // namespace
}  // namespace gpunbd::server::test
