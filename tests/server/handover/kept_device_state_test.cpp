// Driver mappings and results of calibration, passed from one server to the next. Pipes replace the
// driver's files.
#include "server/handover/kept_device_state.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/server/supervisor/living_supervisor.hpp"
#include "tests/test.hpp"

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
    DriverFile first;
    DriverFile second;
    {
        Inheritance own(supervisor);
        KeptMappings mappings(own.store, own.descriptors);
        CHECK(mappings.take_left().empty());
        mappings.keep({first.get(), second.get()});
        mappings.keep({first.get(), second.get()});
        CHECK(supervisor.names() == std::vector<std::string>{mappings_name, mappings_name});
    }
    first.close();  // its server is killed
    second.close();

    Inheritance next(supervisor);
    const DriverFile own;
    std::atomic<bool> undone{false};
    {
        KeptMappings mappings(next.store, next.descriptors);
        CHECK(next.descriptors.names().empty());
        mappings.keep({own.get()});
        CHECK(supervisor.names() == std::vector<std::string>{mappings_name});
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
    DriverFile file;
    {
        Inheritance own(supervisor);
        KeptMappings(own.store, own.descriptors).keep({file.get()});
    }
    Inheritance next(supervisor);
    file.close();
    KeptMappings mappings(next.store, next.descriptors);
    CHECK(file.is_open());
    mappings.undo_now();
    CHECK(!file.is_open());
    CHECK(supervisor.names().empty());
    CHECK(mappings.take_left().empty());
}

TEST_CASE("kept mappings: without any, `then` is called at once") {
    LivingSupervisor supervisor;
    Inheritance own(supervisor);
    KeptMappings mappings(own.store, own.descriptors);
    bool followed = false;
    mappings.undo(std::make_shared<KeptMappings::Files>(), [&] { followed = true; });
    CHECK(followed);
}

TEST_CASE("kept mappings: a server without mappings leaves none with the supervisor") {
    LivingSupervisor supervisor;
    const DriverFile file;
    Inheritance own(supervisor);
    KeptMappings(own.store, own.descriptors).keep({file.get()});
    CHECK(supervisor.names().size() == 1);
    KeptMappings(own.store, own.descriptors).keep({});
    CHECK(supervisor.names().empty());
}

TEST_CASE("kept mappings: a failed removal is retried by the next call") {
    LateSupervisor supervisor;
    const DriverFile file;
    PassedDescriptors none;
    DescriptorStore store(supervisor.way, std::nullopt, {mappings_name});
    KeptMappings mappings(store, none);
    mappings.keep({file.get()});
    supervisor.start();
    mappings.keep({file.get()});
    CHECK(supervisor.socket->next_text() == "FDSTOREREMOVE=1\nFDNAME=" + mappings_name);
    CHECK(supervisor.socket->next_text() == "FDSTORE=1\nFDNAME=" + mappings_name + "\nFDPOLL=0");
    CHECK_FALSE(supervisor.socket->next());
}

TEST_CASE("kept mappings: a full supervisor is logged once") {
    LivingSupervisor supervisor;
    const DriverFile one;
    const DriverFile two;
    Inheritance own(supervisor, 1);
    KeptMappings mappings(own.store, own.descriptors);
    mappings.keep({one.get(), two.get()});
    CHECK(supervisor.names().size() == 1);
}

using States = KeptCalibration::States;

OwnedFd memory_of(const std::string& text) {
    OwnedFd fd(::memfd_create("calibration", MFD_CLOEXEC));
    REQUIRE(::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    return fd;
}

TEST_CASE("kept calibration: passed to the next server and stored once") {
    LivingSupervisor supervisor;
    const States found{{"GPU-1", "line\n2 3\n"}, {"GPU-\"2\"", "\x01 and \xc3\xbc"}};
    {
        Inheritance own(supervisor);
        KeptCalibration calibration(own.store, own.descriptors);
        CHECK(calibration.states().empty());
        calibration.keep({});
        CHECK(supervisor.names().empty());
        calibration.keep({{"GPU-1", "older"}});
        calibration.keep(found);
        calibration.keep(found);
        CHECK(supervisor.names() == std::vector<std::string>{"gpunbd/calibration"});
    }
    Inheritance next(supervisor);
    const KeptCalibration calibration(next.store, next.descriptors);
    CHECK(calibration.states() == found);
    CHECK(next.descriptors.names().empty());
}

TEST_CASE("kept calibration: invalid data cause a new calibration") {
    for (const std::string& text :
         std::vector<std::string>{std::string(), "x", "{", "[]", "1", R"({"GPU-1": 1})",
                                  R"({"GPU-1": "a"} trailing)", R"({"GPU-1": {"a": "b"}})",
                                  std::string(1000, '['), '"' + std::string(2 << 20, 'x') + '"'}) {
        CAPTURE(text.substr(0, 40));
        LivingSupervisor supervisor;
        PassedDescriptors::Descriptors descriptors;
        descriptors.emplace("gpunbd/calibration", memory_of(text));
        PassedDescriptors handed_over(std::move(descriptors));
        DescriptorStore store(supervisor.way, std::nullopt, handed_over.names());
        KeptCalibration calibration(store, handed_over);
        CHECK(calibration.states().empty());
        CHECK(handed_over.names().empty());
        calibration.keep({{"GPU-1", "measured"}});
        CHECK(supervisor.names().size() == 1);
    }
}

TEST_CASE("kept calibration: one that could not be stored is stored by the next call") {
    LateSupervisor supervisor;
    PassedDescriptors none;
    DescriptorStore store(supervisor.way, std::nullopt, {});
    KeptCalibration calibration(store, none);
    const States found{{"GPU-1", "measured"}};
    calibration.keep(found);
    CHECK(calibration.states().empty());
    supervisor.start();
    calibration.keep(found);
    std::string message = supervisor.socket->next_text();
    while (message.starts_with("FDSTOREREMOVE=1\n")) message = supervisor.socket->next_text();
    CHECK(message.starts_with("FDSTORE=1\nFDNAME=gpunbd/calibration\n"));
    CHECK(calibration.states() == found);
}

}  // namespace
}  // namespace gpunbd::server::test
