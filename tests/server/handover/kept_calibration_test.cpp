// The results of calibration, passed from one server to the next.
#include "server/handover/kept_device_state.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "tests/server/supervisor/living_supervisor.hpp"

namespace gpunbd::server::test {
namespace {

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
         {std::string(), std::string("x"), std::string("{"), std::string("[]"), std::string("1"),
          std::string(R"({"GPU-1": 1})"), std::string(R"({"GPU-1": "a"} trailing)"),
          std::string(R"({"GPU-1": {"a": "b"}})"), std::string(1000, '['),
          '"' + std::string(2 << 20, 'x') + '"'}) {
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
    const std::string path = (std::filesystem::temp_directory_path() /
                              ("gpunbd-calibration-" + std::to_string(::getpid())))
                                 .string();
    ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
    const NotifySocket way = std::move(*NotifySocket::from_environment());
    PassedDescriptors none;
    DescriptorStore store(way, std::nullopt, {});
    KeptCalibration calibration(store, none);
    const States found{{"GPU-1", "measured"}};
    calibration.keep(found);
    CHECK(calibration.states().empty());
    const PlayedSupervisor supervisor(path);
    calibration.keep(found);
    auto message = supervisor.next();
    while (message && message->text.starts_with("FDSTOREREMOVE=1\n")) message = supervisor.next();
    REQUIRE(message);
    CHECK(message->text.starts_with("FDSTORE=1\nFDNAME=gpunbd/calibration\n"));
    CHECK(calibration.states() == found);
    ::unlink(path.c_str());
}

}  // namespace
}  // namespace gpunbd::server::test
