#include "config/rules.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <filesystem>
#include <map>
#include <span>
#include <system_error>
#include <vector>

#include "config/devices/device_drivers.hpp"
#include "config/exports_by_name.hpp"
#include "config/network.hpp"
#include "config/quote.hpp"
#include "config/size.hpp"

namespace gpunbd::config::rules {
namespace {

constexpr std::size_t max_host_name = 253;  // RFC 1035
constexpr std::size_t max_label = 63;
constexpr std::size_t max_client_name = 64;  // of a certificate's common name

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

std::string human(std::uint64_t bytes) { return format_size({.bytes = bytes}); }

// Returns what to write instead of another program's name of a device, or an empty text.
std::string device_meant(std::string_view text) {
    if (text.empty()) return {};
    if (text.find(',') != std::string_view::npos) return "one device at a time";
    const std::string folded = lower_case(text);
    if (folded == "auto") return "no device at all to leave the choice to gpunbd";
    for (const DriverInfo& driver : device_drivers()) {
        if (std::string id = driver.guess(folded); !id.empty()) return id;
    }
    return {};
}

// Returns the numeric address for a spelling of other programs (a name, brackets, a port), or an
// empty text.
std::string address_meant(std::string_view text) {
    if (text == "localhost") return "127.0.0.1 or ::1";
    if (text == "*" || text == "any" || text == "all") return "0.0.0.0 for every IPv4 address";
    const std::size_t colon = text.find_last_of(":]");
    const bool has_port = colon != std::string_view::npos && text[colon] == ':';
    std::string_view bare = has_port ? text.substr(0, colon) : text;
    if (bare.size() > 2 && bare.front() == '[' && bare.back() == ']') {
        bare = bare.substr(1, bare.size() - 2);
    }
    if (bare == "localhost") bare = "127.0.0.1";
    if (!parse_zoned_address(std::string(bare))) return {};
    return fmt::format("{}{}", bare, has_port ? ", and the port apart" : "");
}

Checked<std::string> utf8_text(std::string_view text, std::string_view what,
                               bool line_breaks_allowed) {
    if (text.size() > max_text) {
        return Wrong{
            fmt::format("the {} has {} bytes; NBD allows {} at most", what, text.size(), max_text)};
    }
    if (find_invalid_utf8(text) != std::string_view::npos) {
        return Wrong{
            fmt::format("{} is not UTF-8, which NBD requires; write it in UTF-8", in_quotes(text))};
    }
    for (char c : text) {
        if (is_control(c) && !(line_breaks_allowed && (c == '\n' || c == '\t'))) {
            return Wrong{
                fmt::format("{} holds a control character; use printable text", in_quotes(text))};
        }
    }
    return std::string(text);
}

}  // namespace

Checked<std::uint64_t> integer(std::string_view text, IntegerRange range) {
    const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
    const bool negative =
        text.size() > 1 && text[0] == '-' && std::all_of(text.begin() + 1, text.end(), is_digit);
    if ((!digits && !negative) || (digits && text.size() > 1 && text[0] == '0')) {
        return Wrong{fmt::format("{} is not a whole number; write one from {} to {}, in decimal",
                                 in_quotes(text), range.min, range.max)};
    }
    std::uint64_t value = 0;
    const auto error = std::from_chars(text.data(), text.data() + text.size(), value).ec;
    if (negative || error != std::errc() || value < range.min || value > range.max) {
        return Wrong{fmt::format("{} is out of range; write a whole number from {} to {}",
                                 in_quotes(text), range.min, range.max)};
    }
    return value;
}

Checked<std::uint64_t> bytes(std::string_view text, ByteRange range) {
    auto parsed = parse_size(text);
    if (auto* wrong = std::get_if<std::string>(&parsed)) return Wrong{std::move(*wrong)};
    const Size size = std::get<Size>(parsed);
    if (size.percent > 0) {
        return Wrong{
            fmt::format("{} is a share, which only the size of an export can be; write "
                        "bytes, for example 64M",
                        in_quotes(text))};
    }
    if (size.bytes < range.min || size.bytes > range.max) {
        return Wrong{fmt::format("{} is out of range; write {} to {}", in_quotes(text),
                                 human(range.min), human(range.max))};
    }
    if (range.power_of_two && !std::has_single_bit(size.bytes)) {
        // Both bounds are powers of two, so the next lower one is in range.
        return Wrong{fmt::format("{} is not a power of two; use for example {}", in_quotes(text),
                                 human(std::bit_floor(size.bytes)))};
    }
    return size.bytes;
}

Checked<std::chrono::seconds> seconds(std::string_view text, IntegerRange range) {
    std::string_view number = text;
    std::uint64_t unit = 1;  // seconds
    if (!number.empty() && std::string_view("smh").find(number.back()) != std::string_view::npos) {
        unit = number.back() == 'h' ? 3600 : number.back() == 'm' ? 60 : 1;
        number.remove_suffix(1);
    }
    const auto checked = integer(number, {0, range.max / unit});
    if (const auto* value = std::get_if<std::uint64_t>(&checked);
        value != nullptr && *value * unit >= range.min) {
        return std::chrono::seconds(static_cast<std::int64_t>(*value * unit));
    }
    return Wrong{
        fmt::format("{} is not a time; write whole seconds from {} to {}, for example 10 "
                    "or 10s",
                    in_quotes(text), range.min, range.max)};
}

Checked<bool> boolean(std::string_view text) {
    if (text == "true" || text == "True" || text == "TRUE") return true;
    if (text == "false" || text == "False" || text == "FALSE") return false;
    const std::string folded = lower_case(text);
    const auto is_one_of = [&](std::initializer_list<std::string_view> words) {
        return std::find(words.begin(), words.end(), folded) != words.end();
    };
    const std::string_view meant = is_one_of({"yes", "on", "1", "y"})   ? "true"
                                   : is_one_of({"no", "off", "0", "n"}) ? "false"
                                                                        : "true or false";
    return Wrong{fmt::format("{} is neither true nor false; write {}", in_quotes(text), meant)};
}

Checked<Size> export_size(std::string_view text) {
    if (const std::string folded = lower_case(text); folded == "all" || folded == "max") {
        return Wrong{fmt::format("{} is not a size; write 100% for all there is", in_quotes(text))};
    }
    auto parsed = parse_size(text);
    if (auto* wrong = std::get_if<std::string>(&parsed)) return Wrong{std::move(*wrong)};
    const Size size = std::get<Size>(parsed);
    if (size.percent > 0) return size;
    if (size.bytes == 0) {
        return Wrong{fmt::format("{} leaves nothing to export; write for example 8G or 50%",
                                 in_quotes(text))};
    }
    if (size.bytes > max_export_size) {
        return Wrong{fmt::format("{} is out of range; an export has at most {}", in_quotes(text),
                                 human(max_export_size))};
    }
    if (size.bytes % sector != 0) {
        const std::uint64_t down = std::max(size.bytes / sector * sector, sector);
        // A short number without a unit probably lacks one: 8 for 8G.
        const bool bare = text.size() <= 4 && std::all_of(text.begin(), text.end(), is_digit);
        return Wrong{fmt::format("{} is not a multiple of 512 bytes; use for example {}{}",
                                 in_quotes(text), human(down),
                                 bare ? fmt::format(", or {}M with a unit", text) : "")};
    }
    return size;
}

Checked<std::uint64_t> port(std::string_view text) {
    if (text == "0") {
        return Wrong{
            "'0' means any free port, which clients cannot know; write a whole number from 1 to "
            "65535"};
    }
    return integer(text, {1, 65535});
}

Checked<std::uint32_t> vsock_cid(std::string_view text) {
    if (text == "any") return any_cid;
    const auto checked = integer(text, {0, any_cid - 1});
    if (const auto* value = std::get_if<std::uint64_t>(&checked)) {
        return static_cast<std::uint32_t>(*value);
    }
    return Wrong{
        fmt::format("{} is not a context id; write any, or the number of this machine: 2 of a host",
                    in_quotes(text))};
}

Checked<std::string> address(std::string_view text) {
    std::string out(text);
    if (const auto parsed = parse_zoned_address(out)) {
        if (parsed->link_local() == !parsed->zone.empty()) return out;
        if (parsed->zone.empty()) {
            return Wrong{fmt::format(
                "{} is a link-local address, which needs its interface; write for example {}%eth0",
                in_quotes(text), text)};
        }
        return Wrong{fmt::format("{} is no link-local address, so it has no interface; write {}",
                                 in_quotes(text), parsed->address.text())};
    }
    if (const std::string meant = address_meant(text); !meant.empty()) {
        return Wrong{fmt::format("{} is not a numeric IPv4 or IPv6 address; write {}",
                                 in_quotes(text), meant)};
    }
    return Wrong{
        fmt::format("{} is not a numeric IPv4 or IPv6 address; write for example "
                    "127.0.0.1, ::1, or 0.0.0.0 for every IPv4 address",
                    in_quotes(text))};
}

Checked<std::string> host_name(std::string_view text) {
    std::string out(text);
    if (parse_ip(out)) return out;
    const Wrong wrong{
        fmt::format("{} is not the name of a host; write for example storage.example.org, or a "
                    "numeric address, without a port",
                    in_quotes(text))};
    if (text.size() > max_host_name) return wrong;
    if (text.substr(0, 2) == "*.") text.remove_prefix(2);
    bool letters = false;
    for (bool more = true; more;) {
        const std::size_t end = text.find('.');
        const std::string_view label = text.substr(0, end);
        if (label.empty() || label.size() > max_label || label[0] == '-' || label.back() == '-') {
            return wrong;
        }
        for (const char c : label) {
            const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
            if (!letter && !is_digit(c) && c != '-') return wrong;
            letters = letters || letter;
        }
        more = end != std::string_view::npos;
        if (more) text.remove_prefix(end + 1);
    }
    // A name of digits and dots only is a malformed address.
    if (!letters) return wrong;
    return out;
}

Checked<std::string> admin_host(std::string_view text) {
    if (text.substr(0, 2) == "*.") {
        return Wrong{
            fmt::format("{} is not the name of one host; write each name, for example "
                        "storage.example.org",
                        in_quotes(text))};
    }
    return host_name(text);
}

Checked<std::string> client_name(std::string_view text) {
    const bool good = std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) ||
               std::string_view("._@-").find(c) != std::string_view::npos;
    });
    if (good && !text.empty() && text.size() <= max_client_name && text[0] != '.' &&
        text[0] != '-') {
        return std::string(text);
    }
    return Wrong{fmt::format(
        "{} is not a name for a client; write 1 to {} letters, digits, or any of . _ @ - between "
        "them",
        in_quotes(text), max_client_name)};
}

Checked<std::string> device_id(std::string_view text) {
    if (is_spill_only(text)) {
        return Wrong{fmt::format(
            "{} can only take the pages of another device; name it in its spill", in_quotes(text))};
    }
    return spill_id(text);
}

Checked<std::string> spill_id(std::string_view text) {
    std::string correction = device_meant(text);
    for (const DriverInfo& driver : device_drivers()) {
        if (auto id = driver.parse(text)) return *std::move(id);
        const bool has_scheme = text.substr(0, text.find(':')) == driver.scheme;
        if (has_scheme && !driver.correction.empty()) correction = driver.correction;
    }
    return Wrong{fmt::format("{} is not a device; write {} ('gpunbd devices' lists them)",
                             in_quotes(text),
                             correction.empty() ? device_descriptions() : correction)};
}

Checked<std::string> admin_socket(std::string_view text) {
    if (text == no_socket) return std::string(text);
    return unix_path(text);
}

Checked<std::string> unix_path(std::string_view text) {
    if (text.empty()) return Wrong{"the path is empty; write for example /run/gpunbd.sock"};
    if (text.size() > max_unix_path) {
        return Wrong{
            fmt::format("{} has {} bytes, a Unix socket's path at most {}; use a shorter one, for "
                        "example /run/gpunbd.sock",
                        in_quotes(text), text.size(), max_unix_path)};
    }
    if (std::any_of(text.begin(), text.end(), is_control)) {
        return Wrong{
            fmt::format("{} holds a control character; write for example "
                        "/run/gpunbd.sock",
                        in_quotes(text))};
    }
    return std::string(text);
}

Checked<std::string> file_path(std::string_view text) {
    if (text.empty()) return Wrong{"the path is empty; write for example /etc/gpunbd/tls"};
    if (std::any_of(text.begin(), text.end(), is_control)) {
        return Wrong{fmt::format("{} holds a control character; write for example /etc/gpunbd/tls",
                                 in_quotes(text))};
    }
    return std::string(text);
}

Checked<std::string> nbd_uri(std::string_view text) {
    constexpr std::string_view schemes[] = {"nbd://",       "nbds://",      "nbd+unix://",
                                            "nbds+unix://", "nbd+vsock://", "nbds+vsock://"};
    const auto begins = [&](std::string_view scheme) { return text.starts_with(scheme); };
    if (std::ranges::none_of(schemes, begins) || std::ranges::any_of(text, is_control)) {
        return Wrong{
            fmt::format("{} is no NBD URI; write for example nbd://host/image", in_quotes(text))};
    }
    return std::string(text);
}

Checked<std::uint32_t> file_mode(std::string_view text) {
    std::string_view octal = text;
    if (octal.substr(0, 2) == "0o") octal.remove_prefix(2);
    std::uint32_t mode = 0;
    const auto [end, error] = std::from_chars(octal.data(), octal.data() + octal.size(), mode, 8);
    if (error != std::errc() || end != octal.data() + octal.size() || mode > 0777) {
        return Wrong{
            fmt::format("{} is not a mode; write octal digits from 0000 to 0777, for "
                        "example 0660",
                        in_quotes(text))};
    }
    return mode;
}

Checked<std::string> owner(std::string_view text) {
    if (text.empty()) return std::string();
    const std::size_t colon = text.find(':');
    const std::string_view user = text.substr(0, colon);
    const std::string_view group =
        colon == std::string_view::npos ? std::string_view("group") : text.substr(colon + 1);
    const auto is_name = [](std::string_view name) {
        return !name.empty() && name[0] != '-' &&
               std::none_of(name.begin(), name.end(),
                            [](char c) { return c == ':' || c == ' ' || is_control(c); });
    };
    if (is_name(user) && is_name(group)) return std::string(text);
    return Wrong{fmt::format("{} is not an owner; write user or user:group, for example root:disk",
                             in_quotes(text))};
}

Checked<std::string> export_name(std::string_view text) { return utf8_text(text, "name", false); }
// Shorter than NBD's limit, because the server appends the id of the contents.
Checked<std::string> description(std::string_view text) {
    constexpr std::size_t most = 4000;
    if (text.size() > most) {
        return Wrong{
            fmt::format("the description has {} bytes; write {} at most", text.size(), most)};
    }
    return utf8_text(text, "description", true);
}

std::string either(const Words& words) {
    std::string out;
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
        out += words[i];
    }
    return out;
}

Wrong none_of(std::string_view text, const Words& words) {
    const std::string_view meant = nearest(text, words);
    return {fmt::format("{} is none of {}{}", in_quotes(text), either(words),
                        meant.empty() ? "" : fmt::format("; did you mean {}?", meant))};
}

std::string tcp_identity(const TcpListener& listener) {
    const auto address = parse_zoned_address(listener.address);
    return fmt::format("{}:{}", address ? address->text() : listener.address, listener.port);
}

namespace {

// Equal for two spellings of the same path, unless symbolic links are part of it.
std::string file_identity(std::string_view path) {
    std::error_code error;
    const std::filesystem::path whole = std::filesystem::absolute(path, error);
    return (error ? std::filesystem::path(path) : whole).lexically_normal().string();
}

}  // namespace

bool same_file(const std::string& a, const std::string& b) {
    if (file_identity(a) == file_identity(b)) return true;
    struct stat one {};
    struct stat other {};
    if (::stat(a.c_str(), &one) != 0 || ::stat(b.c_str(), &other) != 0) return false;
    if (S_ISBLK(one.st_mode) && S_ISBLK(other.st_mode)) return one.st_rdev == other.st_rdev;
    return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

std::optional<std::string> stripe_error(const ExportOptions& exported, std::string_view layout_name,
                                        std::string_view page_size_name) {
    if (exported.stripe_size == 0) return std::nullopt;
    if (exported.layout != LayoutKind::stripe) {
        return fmt::format("{} has no effect with {} linear; use {} stripe, or leave it out",
                           human(exported.stripe_size), layout_name, layout_name);
    }
    if (exported.stripe_size % exported.page_size == 0) return std::nullopt;
    const std::uint64_t up = (exported.stripe_size / exported.page_size + 1) * exported.page_size;
    return fmt::format("{} is not a multiple of {} ({}); use for example {}",
                       human(exported.stripe_size), page_size_name, human(exported.page_size),
                       human(up));
}

std::optional<std::string> size_error(const ExportOptions& exported,
                                      std::string_view minimum_name) {
    const std::uint64_t minimum = exported.block_size.minimum;
    const std::uint64_t size = exported.is_template() ? exported.clone_per_client.size.value_or(0)
                               : exported.size        ? exported.size->bytes
                                                      : 0;
    if (size % minimum == 0) return std::nullopt;
    const std::uint64_t up = (size / minimum + 1) * minimum;
    return fmt::format("{} is not a multiple of {} ({}); use for example {}", human(size),
                       minimum_name, human(minimum), human(up));
}

std::optional<Misplaced> swap_error(const Options& options) {
    if (!options.any_swap()) return std::nullopt;
    if (options.tls.mode != TlsMode::off) {
        return Misplaced{"tls",
                         "TLS and an export with swap exclude each other: the kernel's client "
                         "passes TLS through a process, which waits for memory when the kernel "
                         "waits for it; leave one of the two out, or serve them by two servers"};
    }
    if (options.limits.idle.count() != 0) {
        return Misplaced{"limits",
                         "idle and an export with swap exclude each other: a machine may not swap "
                         "for hours, and loses swapped-out memory if its connection is closed; "
                         "leave idle out"};
    }
    return std::nullopt;
}

namespace {

std::optional<DeviceError> revocable_error(const Options& options, std::size_t index) {
    const DeviceOptions& device = options.devices[index];
    if (device.revocable == 0) return std::nullopt;
    for (const ExportOptions& exported : options.exports) {
        // The server may choose this device for an export without devices.
        const bool uses = exported.devices.empty() ||
                          std::ranges::find(exported.devices, device.id) != exported.devices.end();
        if (!uses || (!exported.keep && !exported.swap)) continue;
        return DeviceError{
            index, "revocable",
            fmt::format("revocable memory and {} of the export {} exclude each other: {}; leave "
                        "one of the two out, or use another device for the export",
                        exported.keep ? "keep" : "swap", in_quotes(exported.name),
                        exported.keep ? "memory that outlives the server cannot be revocable"
                                      : "the driver needs host memory to move it, which the "
                                        "machine lacks when it swaps")};
    }
    return std::nullopt;
}

std::optional<DeviceError> spill_error(const Options& options, std::size_t index) {
    const DeviceOptions& device = options.devices[index];
    // Pages of a cache need no place.
    const auto is_cache_here = [&](const ExportOptions& each) {
        return each.has_origin() &&
               (each.devices.empty() ||
                std::ranges::find(each.devices, device.id) != each.devices.end());
    };
    if (device.keep_free != 0 && device.spill.empty() &&
        std::ranges::none_of(options.exports, is_cache_here)) {
        return DeviceError{index, "keep_free",
                           "needs a place for the pages; add for example spill: [{host: 64G}]"};
    }
    for (const SpillOptions& spill : device.spill) {
        if (!is_spill_only(spill.device)) continue;
        const auto earlier = std::span(options.devices).first(index);
        const auto other = std::ranges::find_if(earlier, [&](const DeviceOptions& each) {
            return std::ranges::find(each.spill, spill.device, &SpillOptions::device) !=
                   each.spill.end();
        });
        if (other == earlier.end()) continue;
        return DeviceError{index, "spill",
                           fmt::format("{} takes the pages of {} already; name another file",
                                       in_quotes(spill.device), other->id)};
    }
    return std::nullopt;
}

}  // namespace

std::optional<DeviceError> device_error(const Options& options) {
    for (std::size_t index = 0; index != options.devices.size(); ++index) {
        if (auto error = revocable_error(options, index)) return error;
        if (auto error = spill_error(options, index)) return error;
    }
    return std::nullopt;
}

std::optional<ExportError> ublk_error(const Options& options) {
    std::map<std::uint32_t, const ExportOptions*> by_id;
    for (std::size_t index = 0; index != options.exports.size(); ++index) {
        const ExportOptions& exported = options.exports[index];
        if (!exported.ublk.enabled || !exported.ublk.id) continue;
        const auto [first, added] = by_id.emplace(*exported.ublk.id, &exported);
        if (added) continue;
        return ExportError{index, fmt::format("export {} has the id {} already; use another one",
                                              in_quotes(first->second->name), *exported.ublk.id)};
    }
    return std::nullopt;
}

std::optional<ExportError> save_error(const Options& options) {
    std::map<std::string, std::string> uses;  // by path, not by file: a file system may hang
    for (const DeviceOptions& device : options.devices) {
        for (const SpillOptions& spill : device.spill) {
            if (!is_spill_only(spill.device)) continue;
            const auto path = std::string_view(spill.device).substr(spill.device.find(':') + 1);
            uses.emplace(file_identity(path), device.id + " spills");
        }
    }
    for (std::size_t index = 0; index != options.exports.size(); ++index) {
        const ExportOptions& exported = options.exports[index];
        if (exported.save.path.empty()) continue;
        const auto [first, added] =
            uses.emplace(file_identity(exported.save.path),
                         fmt::format("export {} saves", in_quotes(exported.name)));
        if (added) continue;
        return ExportError{index,
                           fmt::format("{} to this file already; use another one", first->second)};
    }
    return std::nullopt;
}

namespace {

// Why the export cannot be the source of a clone of so many bytes; empty: it can. `above`: the
// exports above the clone.
std::string source_error(const ExportsByName& above, const std::string& source,
                         std::optional<std::uint64_t> size) {
    const ExportOptions* const found = above.find(source);
    if (found == nullptr) {
        return fmt::format("{} is no export above this one; write the name of one, or move it up",
                           in_quotes(source));
    }
    if (found->is_template()) {
        return fmt::format("the export {} has clone_per_client and therefore no contents; write {}",
                           in_quotes(source), in_quotes(found->clone_per_client.of));
    }
    if (found->origin.is_writable()) {
        return fmt::format(
            "the export {} writes to its origin, and cannot be cloned; only one with "
            "mode: read-only can",
            in_quotes(source));
    }
    if (size && found->size && found->size->percent == 0 && *size < found->size->bytes) {
        return fmt::format("a clone of {} cannot be smaller; use at least {}", in_quotes(source),
                           human(found->size->bytes));
    }
    return {};
}

// Volumes that share pages are kept together, and the clone of a cache needs its source.
std::string keep_error(const ExportsByName& above, const ExportOptions& clone) {
    const bool keep = above.find(clone.clone_of)->keep;
    if (keep == clone.keep) return {};
    if (keep) {
        return fmt::format("the export {} has keep, so its clone needs it too; add keep: true here",
                           in_quotes(clone.clone_of));
    }
    return fmt::format(
        "the export {} has no keep, so its clone cannot have it; add it there, or remove it here",
        in_quotes(clone.clone_of));
}

std::string template_tls_error(const TlsOptions& tls, const ExportOptions& exported) {
    if (exported.clone_per_client.name != ClientId::tls_name) return {};
    if (tls.mode == TlsMode::off || tls.certificates.empty() || !tls.verify_clients) {
        return "tls_name needs verified client certificates; set tls.certificates, and leave "
               "tls.verify_clients at true, or use name: address";
    }
    if (tls.mode == TlsMode::optional && !exported.tls_required) {
        return "tls_name needs TLS; add tls: required to this export";
    }
    return {};
}

// Of the exports that `concerns` chooses, the first one with a problem. `why` also gets the exports
// above it. A server with thousands of exports checks this at each change, so names are only
// indexed if they are needed.
template <typename Concerns, typename Why>
std::optional<ExportError> first_error(const Options& options, const Concerns& concerns,
                                       const Why& why) {
    const auto& exports = options.exports;
    ExportsByName above;
    std::size_t indexed = 0;
    for (std::size_t i = 0; i != exports.size(); ++i) {
        if (!concerns(exports[i])) continue;
        if (indexed == 0) above.reserve(exports.size());
        while (indexed != i) above.add(exports[indexed++]);
        if (std::string problem = why(above, exports[i]); !problem.empty()) {
            return ExportError{i, std::move(problem)};
        }
    }
    return std::nullopt;
}

}  // namespace

std::optional<ExportError> clone_error(const Options& options) {
    return first_error(
        options,
        [](const ExportOptions& each) {
            return !each.clone_of.empty() && !each.provenance.run_time;
        },
        [](const ExportsByName& above, const ExportOptions& each) {
            const bool has_bytes = each.size && each.size->percent == 0;
            const auto size = has_bytes ? std::optional(each.size->bytes) : std::nullopt;
            std::string why = source_error(above, each.clone_of, size);
            return why.empty() ? keep_error(above, each) : why;
        });
}

std::optional<ExportError> template_error(const Options& options) {
    return first_error(
        options, [](const ExportOptions& each) { return each.is_template(); },
        [&](const ExportsByName& above, const ExportOptions& each) {
            const CloneTemplate& wanted = each.clone_per_client;
            std::string why = source_error(above, wanted.of, wanted.size);
            return why.empty() ? template_tls_error(options.tls, each) : why;
        });
}

std::optional<std::string> contradiction(const Options& options) {
    if (auto error = swap_error(options)) return std::move(error->what);
    if (const auto error = device_error(options)) {
        return fmt::format("{}: {}: {}", options.devices[error->device].id, error->key,
                           error->what);
    }
    const auto text = [&](std::string_view key, const ExportError& error) {
        return fmt::format("export {}: {}: {}", in_quotes(options.exports[error.exported].name),
                           key, error.what);
    };
    if (const auto error = clone_error(options)) return text("clone_of", *error);
    if (const auto error = template_error(options)) return text("clone_per_client", *error);
    if (const auto error = ublk_error(options)) return text("ublk", *error);
    if (const auto error = save_error(options)) return text("save.path", *error);
    return std::nullopt;
}

std::optional<Misplaced> admin_error(const Options& options) {
    const AdminTcp& tcp = options.admin.tcp;
    const auto wrong = [](std::string what) { return Misplaced{"admin", std::move(what)}; };
    if (!tcp.address) {
        if (tcp.token.empty() && !tcp.tls && options.admin.hosts.empty()) return std::nullopt;
        return wrong(
            "a token, TLS and hosts have no effect without an address; set admin.tcp.address "
            "(--admin), or leave them out");
    }
    if (tcp.tls && (options.tls.certificates.empty() || !options.tls.verify_clients)) {
        return wrong(
            "admin.tcp.tls needs verified client certificates; set tls.certificates, and leave "
            "tls.verify_clients at true");
    }
    const auto address = parse_zoned_address(*tcp.address);
    if ((address && address->address.loopback()) || tcp.tls || !tcp.token.empty())
        return std::nullopt;
    return wrong(
        fmt::format("other machines can reach {} without authentication; set admin.tcp.token "
                    "(--admin-token) or admin.tcp.tls, or use 127.0.0.1",
                    *tcp.address));
}

std::uint64_t min_pinned(const PipelineOptions& pipeline) {
    if (!pipeline.chunk_size) return 0;
    return std::bit_ceil(2 * pipeline.slots * *pipeline.chunk_size);
}

std::string lower_case(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return out;
}

bool is_part(std::string_view a, std::string_view b) {
    for (std::string_view* text : {&a, &b}) {
        text->remove_prefix(std::min(text->find_first_not_of('-'), text->size()));
    }
    return std::min(a.size(), b.size()) > 2 && (a.starts_with(b) || b.starts_with(a));
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
    constexpr std::size_t longest = 64;  // longer texts resemble no key
    if (a.size() > longest || b.size() > longest) return longest;
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0U : 1U);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}

}  // namespace gpunbd::config::rules
