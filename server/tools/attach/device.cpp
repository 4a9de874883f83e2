#include "server/tools/attach/device.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include "config/quote.hpp"
#include "server/base/process.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::attach {

namespace {

constexpr std::uint64_t sector = 512;
constexpr std::chrono::milliseconds settle_interval(20);

template <typename Condition>
bool eventually(std::chrono::milliseconds within, Condition condition) {
    const auto end = std::chrono::steady_clock::now() + within;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(settle_interval);
    }
    return true;
}

}  // namespace

config::rules::Checked<std::uint32_t> nbd_device(std::string_view text) {
    constexpr std::string_view start = "/dev/nbd";
    constexpr std::uint64_t last = (1U << 20) - 1;  // the limit of the kernel's minor numbers
    if (text.starts_with(start)) {
        const auto number = config::rules::integer(text.substr(start.size()), {0, last});
        if (const auto* value = std::get_if<std::uint64_t>(&number)) {
            return static_cast<std::uint32_t>(*value);
        }
    }
    return config::rules::Wrong{fmt::format("{} is not an NBD device; write for example /dev/nbd0",
                                            config::in_quotes(text))};
}

std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> out;
    std::error_code error;
    for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
         at.increment(error)) {
        out.push_back(at->path().filename());
    }
    std::sort(out.begin(), out.end());
    return out;
}

std::vector<std::string> Device::partitions() const {
    std::vector<std::string> out = names_in(folder());
    const std::string start = name() + "p";
    std::erase_if(out, [&](const std::string& each) { return !each.starts_with(start); });
    std::sort(out.begin(), out.end());
    return out;
}

std::optional<std::string> Device::attribute(std::string_view name) const {
    std::ifstream file(fmt::format("{}/{}", folder(), name));
    std::string line;
    if (!file || !std::getline(file, line)) return std::nullopt;
    return line;
}

std::optional<std::uint64_t> Device::number_in(std::string_view name) const {
    const auto text = attribute(name);
    return text ? server::decimal(*text) : std::nullopt;
}

std::optional<Failure> Device::set(std::string_view name, std::string_view text) const {
    const std::string path = fmt::format("{}/{}", folder(), name);
    const OwnedFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.get() < 0) return failure(path, errno);
    if (::write(file.get(), text.data(), text.size()) < 0) {
        return failure(fmt::format("{} > {}", text, path), errno);
    }
    return std::nullopt;
}

std::uint64_t Device::size() const { return number_in("size").value_or(0) * sector; }

bool Device::has_file() const {
    const auto numbers = attribute("dev");
    struct stat file {};
    if (!numbers || ::stat(path().c_str(), &file) != 0 || !S_ISBLK(file.st_mode)) return false;
    return *numbers == fmt::format("{}:{}", major(file.st_rdev), minor(file.st_rdev));
}

std::optional<Failure> Device::await(std::uint64_t bytes, std::chrono::milliseconds within) const {
    if (!eventually(within, [&] { return size() == bytes / sector * sector; })) {
        return Failure{
            fmt::format("the size of {} is {} bytes, expected {}", path(), size(), bytes)};
    }
    if (!eventually(within, [&] { return has_file(); })) {
        return Failure{
            path() +
            " does not appear; check that /dev is a devtmpfs and that this is not a container"};
    }
    return std::nullopt;
}

std::optional<Failure> Device::await_detached(std::chrono::milliseconds within) const {
    if (eventually(within, [&] { return !attached(); })) return std::nullopt;
    return Failure{path() + " is still attached: the kernel waits for requests in progress"};
}

std::vector<Device> attached_devices(const std::string& root) {
    constexpr std::string_view start = "nbd";
    std::vector<Device> out;
    for (const std::string& name : names_in(root + "sys/block")) {
        if (!name.starts_with(start)) continue;
        const auto number = server::decimal(std::string_view(name).substr(start.size()));
        if (!number || *number > UINT32_MAX) continue;
        Device device(static_cast<std::uint32_t>(*number), root);
        if (device.attached()) out.push_back(std::move(device));
    }
    std::sort(out.begin(), out.end(),
              [](const Device& a, const Device& b) { return a.number() < b.number(); });
    return out;
}

}  // namespace gpunbd::attach
