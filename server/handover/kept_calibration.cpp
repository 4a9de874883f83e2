#include "server/handover/kept_calibration.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <optional>

#include "server/supervisor/descriptor_store.hpp"

namespace gpunbd::server {

namespace {

const std::string calibration_name = std::string(own_prefix) + "calibration";
constexpr off_t max_calibration = 1 << 20;  // bytes

std::optional<std::string> content_of(int fd) {
    struct stat file {};
    if (::fstat(fd, &file) != 0 || file.st_size <= 0 || file.st_size > max_calibration) {
        return std::nullopt;
    }
    std::string text(static_cast<std::size_t>(file.st_size), '\0');
    if (::pread(fd, text.data(), text.size(), 0) != file.st_size) return std::nullopt;
    return text;
}

std::optional<KeptCalibration::States> states_in(const std::string& text) {
    boost::system::error_code error;
    const boost::json::value parsed = boost::json::parse(text, error);
    if (error || !parsed.is_object()) return std::nullopt;
    KeptCalibration::States states;
    for (const auto& [identity, state] : parsed.get_object()) {
        if (!state.is_string()) return std::nullopt;
        states.emplace(identity, state.get_string());
    }
    return states;
}

std::optional<std::string> store_text(DescriptorStore& store, const std::string& text) {
    const OwnedFd file(::memfd_create("gpunbd calibration", MFD_CLOEXEC));
    const auto length = static_cast<ssize_t>(text.size());
    if (file.get() < 0 || ::write(file.get(), text.data(), text.size()) != length) {
        return std::strerror(errno);
    }
    return store.store(calibration_name, file.get());
}

}  // namespace

KeptCalibration::KeptCalibration(DescriptorStore& store, PassedDescriptors& handed_over)
    : store_(store) {
    for (const OwnedFd& each : handed_over.take(calibration_name)) {
        const auto text = content_of(each.get());
        auto states = text ? states_in(*text) : std::nullopt;
        if (states) {
            states_ = std::move(*states);
        } else {
            spdlog::warn("the stored calibration cannot be read; the devices are calibrated again");
        }
    }
}

void KeptCalibration::keep(const States& states) {
    if (states == states_) return;
    boost::json::object text;
    for (const auto& [identity, state] : states) text[identity] = state;
    auto wrong = store_.remove(calibration_name);
    if (!wrong) wrong = store_text(store_, boost::json::serialize(text));
    if (wrong) {
        spdlog::warn("the calibration cannot be stored, so the next server calibrates again: {}",
                     *wrong);
        return;
    }
    states_ = states;
}

}  // namespace gpunbd::server
