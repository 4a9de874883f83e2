#include "storage/devices/file/file_driver.hpp"

#include <algorithm>
#include <climits>

#include "storage/devices/file/file_device.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::string_view file_prefix = "file:";

// Removes empty and "." components, so that a file has one spelling. ".." is refused, because its
// meaning depends on symbolic links.
std::optional<std::string> parse_file_id(std::string_view text) {
    if (!text.starts_with("file:/")) return std::nullopt;
    const auto is_control = [](char c) {
        return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    };
    if (std::ranges::any_of(text, is_control)) return std::nullopt;
    std::string id(file_prefix);
    for (std::string_view rest = text.substr(file_prefix.size()); !rest.empty();) {
        rest.remove_prefix(1);
        const std::string_view name = rest.substr(0, rest.find('/'));
        rest.remove_prefix(name.size());
        if (name == "..") return std::nullopt;
        if (name.empty() || name == ".") continue;
        id += '/';
        id += name;
    }
    const std::size_t path = id.size() - file_prefix.size();
    if (path == 0 || path >= PATH_MAX) return std::nullopt;
    return id;
}

std::string guess_no_file(std::string_view) { return {}; }

class FileDriver final : public DeviceDriver {
 public:
    std::string_view scheme() const override { return "file"; }
    bool drives_gpus() const override { return false; }
    config::DriverInfo info() const override {
        return {.form = "file:PATH",
                .description = "file:PATH",
                .example = "file:/var/lib/gpunbd/spill",
                .correction =
                    "file: and the absolute path of a file, without .., for example "
                    "file:/var/lib/gpunbd/spill",
                .parse = parse_file_id,
                .guess = guess_no_file,
                .completed = false,
                .spill_only = true};
    }
    // Opening a file creates it, so none is listed.
    std::vector<std::string> enumerate(std::string&) const override { return {}; }
    std::unique_ptr<Device> open(std::string_view id, std::uint32_t number,
                                 const DeviceOptions& options) const override {
        return open_file_device(
            number, std::string(id.substr(file_prefix.size())),
            {.capacity = options.capacity.value_or(0), .encrypt = options.encrypt});
    }
};

}  // namespace

const DeviceDriver& file_driver() {
    static const FileDriver driver;
    return driver;
}

}  // namespace gpunbd::storage
