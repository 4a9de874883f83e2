#include "server/handover/kept_device_state.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "server/supervisor/descriptor_store.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/signals_blocked.hpp"

namespace gpunbd::server {

namespace {

const std::string mappings_name = std::string(own_prefix) + "mappings";

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

KeptMappings::KeptMappings(DescriptorStore& store, PassedDescriptors& handed_over)
    : store_(store), left_(handed_over.take(mappings_name)) {}

KeptMappings::~KeptMappings() {
    if (undoing_.joinable()) undoing_.join();
}

void KeptMappings::keep(const std::vector<const OwnedFd*>& files) {
    std::vector<int> numbers;
    numbers.reserve(files.size());
    for (const OwnedFd* file : files) numbers.push_back(file->get());
    if (numbers == kept_ && !others_kept_) return;
    if (const auto wrong = store_.remove(mappings_name)) {
        // The next call retries this: the stored files hold device memory.
        spdlog::warn(
            "the mappings of an earlier server cannot be removed from the supervisor yet: {}",
            *wrong);
        others_kept_ = true;
        return;
    }
    std::optional<std::string> wrong;
    for (std::size_t i = 0; !wrong && i != numbers.size(); ++i) {
        wrong = store_.store(mappings_name, numbers[i]);
    }
    if (wrong)
        spdlog::warn("the mappings cannot be stored, so a killed server takes longer to end: {}",
                     *wrong);
    kept_ = std::move(numbers);
    others_kept_ = false;
}

void KeptMappings::undo_now() {
    keep({});  // so that the copy that is closed next is the last one
    if (const auto wrong = store_.barrier(std::chrono::seconds(10))) spdlog::warn("{}", *wrong);
    left_.clear();
}

void KeptMappings::undo(std::shared_ptr<Files> left, std::function<void()> then) {
    if (left->empty()) return then();
    GPUNBD_ASSERT(!undoing_.joinable(), "the mappings of an earlier server are undone once");
    const storage::SignalsBlocked blocked;
    undoing_ = std::thread([left = std::move(left), then = std::move(then)] {
        left->clear();
        then();
    });
}

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
