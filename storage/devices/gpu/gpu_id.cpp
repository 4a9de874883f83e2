#include "storage/devices/gpu/gpu_id.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "storage/devices/gpu/pci.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::string_view uuid_prefix = "GPU-";
constexpr std::size_t max_digits = 3;

bool is_number(std::string_view text) {
    return !text.empty() && text.size() <= max_digits &&
           text.find_first_not_of("0123456789") == text.npos &&
           (text.size() == 1 || text[0] != '0');
}

bool is_uuid(std::string_view text) {
    constexpr std::string_view form = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    return std::ranges::equal(text, form, [](char c, char wanted) {
        if (wanted == '-') return c == '-';
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    });
}

}  // namespace

std::string gpu_identity(const std::array<unsigned char, 16>& uuid) {
    std::string text = "GPU-";
    for (std::size_t i = 0; i != uuid.size(); ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += fmt::format("{:02x}", uuid[i]);
    }
    return text;
}

std::string reason_not_gpu_memory(const OwnedFd& descriptor) {
    struct stat facts {};
    if (::fstat(descriptor.get(), &facts) != 0) return std::strerror(errno);
    const bool memory_file = ::fcntl(descriptor.get(), F_GET_SEALS) >= 0;
    const bool known = S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode) ||
                       S_ISFIFO(facts.st_mode) || S_ISSOCK(facts.st_mode);
    return memory_file || known ? "it is not GPU memory" : "";
}

std::optional<std::string> parse_gpu_id(std::string_view scheme, std::string_view text) {
    if (!text.starts_with(scheme) || !text.substr(scheme.size()).starts_with(':')) {
        return std::nullopt;
    }
    std::string device(text.substr(scheme.size() + 1));
    if (is_number(device)) return std::string(text);
    if (const auto address = parse_pci_address(device)) {
        return fmt::format("{}:{}", scheme, *address);
    }
    for (char& c : device) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (device.starts_with("gpu-")) device.erase(0, uuid_prefix.size());
    if (!is_uuid(device)) return std::nullopt;
    return fmt::format("{}:{}{}", scheme, uuid_prefix, device);
}

bool is_gpu_named(std::string_view id, std::uint32_t number, std::string_view hardware,
                  std::string_view address) {
    id.remove_prefix(std::min(id.find(':'), id.size() - 1) + 1);
    return id == hardware || id == address || id == std::to_string(number);
}

}  // namespace gpunbd::storage
