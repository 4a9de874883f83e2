// Driver mappings passed from one server to the next; pipes replace the driver's files.
#include "server/handover/kept_device_state.hpp"

#include <doctest/doctest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/server/supervisor/living_supervisor.hpp"

namespace gpunbd::server::test {
namespace {

const std::string mappings_name = "gpunbd/mappings";

// A file, and whether any copy of it is open.
class DriverFile {
 public:
    DriverFile() {
        std::array<int, 2> ends{};
        REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
        watched_.emplace(ends[0]);
        file_.emplace(ends[1]);
    }
    const OwnedFd* get() const { return &*file_; }
    void close() { file_.reset(); }
    bool is_open() const {
        pollfd look{.fd = watched_->get(), .events = 0, .revents = 0};
        return ::poll(&look, 1, 0) == 0;
    }

 private:
    std::optional<OwnedFd> watched_;
    std::optional<OwnedFd> file_;
};

TEST_CASE("kept mappings: the next server removes them on request") {
    LivingSupervisor supervisor;
    const NotifySocket way = supervisor.way();
    DriverFile first;
    DriverFile second;
    {
        PassedDescriptors none = supervisor.hand_over(way);
        DescriptorStore store(way, std::nullopt, none.names());
        KeptMappings mappings(store, none);
        CHECK(mappings.take_left().empty());
        mappings.keep({first.get(), second.get()});
        mappings.keep({first.get(), second.get()});
        CHECK(supervisor.names(way) == std::vector<std::string>{mappings_name, mappings_name});
    }
    first.close();  // its server is killed
    second.close();

    PassedDescriptors handed_over = supervisor.hand_over(way);
    DescriptorStore store(way, std::nullopt, handed_over.names());
    const DriverFile own;
    std::atomic<bool> undone{false};
    {
        KeptMappings mappings(store, handed_over);
        CHECK(handed_over.names().empty());
        mappings.keep({own.get()});
        CHECK(supervisor.names(way) == std::vector<std::string>{mappings_name});
        CHECK(first.is_open());  // the supervisor did not close the last copy
        CHECK(second.is_open());
        auto left = std::make_shared<KeptMappings::Files>(mappings.take_left());
        CHECK(left->size() == 2);
        mappings.undo(std::move(left),
                      [&] { undone = !first.is_open() && !second.is_open() && own.is_open(); });
        CHECK(mappings.take_left().empty());
    }
    CHECK(undone);
}

TEST_CASE("kept mappings: removed at once if there is no address space for both") {
    LivingSupervisor supervisor;
    const NotifySocket way = supervisor.way();
    DriverFile file;
    {
        PassedDescriptors none = supervisor.hand_over(way);
        DescriptorStore store(way, std::nullopt, none.names());
        KeptMappings(store, none).keep({file.get()});
    }
    PassedDescriptors handed_over = supervisor.hand_over(way);
    file.close();
    DescriptorStore store(way, std::nullopt, handed_over.names());
    KeptMappings mappings(store, handed_over);
    CHECK(file.is_open());
    mappings.undo_now();
    CHECK(!file.is_open());
    CHECK(supervisor.names(way).empty());
    CHECK(mappings.take_left().empty());
}

TEST_CASE("kept mappings: without any, `then` is called at once") {
    LivingSupervisor supervisor;
    const NotifySocket way = supervisor.way();
    PassedDescriptors none = supervisor.hand_over(way);
    DescriptorStore store(way, std::nullopt, none.names());
    KeptMappings mappings(store, none);
    bool followed = false;
    mappings.undo(std::make_shared<KeptMappings::Files>(), [&] { followed = true; });
    CHECK(followed);
}

TEST_CASE("kept mappings: a server without mappings leaves none with the supervisor") {
    LivingSupervisor supervisor;
    const NotifySocket way = supervisor.way();
    const DriverFile file;
    PassedDescriptors none = supervisor.hand_over(way);
    DescriptorStore store(way, std::nullopt, none.names());
    KeptMappings(store, none).keep({file.get()});
    CHECK(supervisor.names(way).size() == 1);
    KeptMappings(store, none).keep({});
    CHECK(supervisor.names(way).empty());
}

TEST_CASE("kept mappings: a failed removal is retried by the next call") {
    const std::string path =
        (std::filesystem::temp_directory_path() / ("gpunbd-mappings-" + std::to_string(::getpid())))
            .string();
    ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
    const NotifySocket way = std::move(*NotifySocket::from_environment());
    const DriverFile file;
    PassedDescriptors none;
    DescriptorStore store(way, std::nullopt, {mappings_name});
    KeptMappings mappings(store, none);
    mappings.keep({file.get()});
    const PlayedSupervisor supervisor(path);
    mappings.keep({file.get()});
    for (const std::string& expected : {"FDSTOREREMOVE=1\nFDNAME=" + mappings_name,
                                        "FDSTORE=1\nFDNAME=" + mappings_name + "\nFDPOLL=0"}) {
        const auto message = supervisor.next();
        REQUIRE(message);
        CHECK(message->text == expected);
    }
    CHECK_FALSE(supervisor.next());
    ::unlink(path.c_str());
}

TEST_CASE("kept mappings: a full supervisor is logged once") {
    LivingSupervisor supervisor;
    const NotifySocket way = supervisor.way();
    const DriverFile one;
    const DriverFile two;
    PassedDescriptors none = supervisor.hand_over(way);
    DescriptorStore store(way, 1, none.names());
    KeptMappings mappings(store, none);
    mappings.keep({one.get(), two.get()});
    CHECK(supervisor.names(way).size() == 1);
}

}  // namespace
}  // namespace gpunbd::server::test
