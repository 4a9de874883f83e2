// The rules for values of the configuration file and the command line: each parses a text to a
// value, or returns an error with a remedy.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "config/options.hpp"

namespace gpunbd::config::rules {

struct Wrong {
    std::string what;
};
template <class T>
using Checked = std::variant<T, Wrong>;

// Of an export with an origin: one client may use so many pages at once.
inline constexpr std::uint64_t fewest_cached_pages = 8;
inline constexpr std::uint64_t sector = 512;  // bytes; sizes are multiples
inline constexpr std::uint64_t max_export_size = std::uint64_t{1} << 62;  // offsets stay signed
inline constexpr std::size_t max_text = 4096;      // bytes: NBD's string limit
inline constexpr std::size_t max_unix_path = 107;  // bytes: sun_path less its NUL
inline constexpr std::size_t max_exports = 4096;
inline constexpr std::size_t max_access_rules = 1024;  // of an export
inline constexpr std::size_t max_listeners = 64;       // of each kind
inline constexpr std::size_t max_devices = 64;         // of an export, or listed
inline constexpr std::size_t max_spills = 8;           // of a device
inline constexpr std::uint32_t max_ublk_id = 1023;
inline constexpr std::uint32_t max_ublk_queues = 64;
inline constexpr std::uint32_t max_ublk_depth = 4096;        // the kernel's maximum
inline constexpr std::uint64_t max_request_size = 32 * MiB;  // payload of one request

struct IntegerRange {
    std::uint64_t min;
    std::uint64_t max;
};
struct ByteRange {
    std::uint64_t min;
    std::uint64_t max;
    bool power_of_two = false;
};

Checked<std::uint64_t> integer(std::string_view text, IntegerRange range);
Checked<std::uint64_t> bytes(std::string_view text, ByteRange range);
Checked<std::chrono::seconds> seconds(std::string_view text,
                                      IntegerRange range);  // "10", "10s", "15m", "2h"
Checked<bool> boolean(std::string_view text);
Checked<Size> export_size(std::string_view text);

Checked<std::uint64_t> port(std::string_view text);
Checked<std::uint32_t> vsock_cid(std::string_view text);  // "any" or a number
Checked<std::string> address(std::string_view text);      // numeric IPv4 or IPv6
Checked<std::string> host_name(std::string_view text);    // also a DNS name; for certificates
Checked<std::string> admin_host(std::string_view text);   // likewise, of one host
Checked<std::string> client_name(std::string_view text);  // also valid as a file name
Checked<std::string> device_id(std::string_view text);    // returns the canonical spelling
// Also devices that can only take the pages of another device.
Checked<std::string> spill_id(std::string_view text);
Checked<std::string> unix_path(std::string_view text);
Checked<std::string> admin_socket(std::string_view text);  // a path, or no_socket
Checked<std::string> file_path(std::string_view text);     // of a file or folder
Checked<std::string> nbd_uri(std::string_view text);
Checked<std::uint32_t> file_mode(std::string_view text);
Checked<std::string> owner(std::string_view text);
Checked<std::string> export_name(std::string_view text);
Checked<std::string> description(std::string_view text);
Checked<Network> network(std::string_view text);  // "10.0.0.0/8", or one address
Checked<Account> user(std::string_view text);     // by name or number
Checked<Account> group(std::string_view text);
Checked<std::string> tls_name(std::string_view text);
Checked<std::string> psk_user(std::string_view text);

using Words = std::vector<std::string_view>;
std::string either(const Words& words);  // "a, b or c"
Wrong none_of(std::string_view text, const Words& words);

// Equal for two spellings of the same address and port.
std::string tcp_identity(const TcpListener& listener);
// Whether both paths name one file or one block device, which need not exist. May wait for a file
// system.
bool same_file(const std::string& a, const std::string& b);

// Checks the stripe size against the settings on which it depends. The names are those of the
// file ("page_size") or of the flags ("--page-size"). Returns an error, if any.
std::optional<std::string> stripe_error(const ExportOptions& exported, std::string_view layout_name,
                                        std::string_view page_size_name);
// Likewise, the size of an export against its minimum block size.
std::optional<std::string> size_error(const ExportOptions& exported, std::string_view minimum_name);
// A contradiction between settings: a section that takes part in it, and the error.
struct Misplaced {
    std::string_view section;
    std::string what;
};
// For exports with swap.
std::optional<Misplaced> swap_error(const Options& options);
// A setting of a device that an export or another device excludes.
struct DeviceError {
    std::size_t device;  // its index in Options::devices
    std::string_view key;
    std::string what;
};
std::optional<DeviceError> device_error(const Options& options);
// An export that contradicts another one.
struct ExportError {
    std::size_t exported;  // its index in Options::exports
    std::string what;
};
// A clone that is not possible. Clones of a running server exist already.
std::optional<ExportError> clone_error(const Options& options);
// An export with clone_per_client that can make no clones.
std::optional<ExportError> template_error(const Options& options);
// A ublk id that another export has.
std::optional<ExportError> ublk_error(const Options& options);
// An export that saves to a file of another export, or of the spill of a device.
std::optional<ExportError> save_error(const Options& options);
// What contradicts itself between exports and the other sections, as one line without a position.
std::optional<std::string> contradiction(const Options& options);
// For the admin endpoint on TCP: addresses that other machines can reach need authentication.
std::optional<Misplaced> admin_error(const Options& options);
// The minimum of `pinned` with which two transfers can have `slots` chunks in flight; 0 if the
// chunk size is calibrated.
std::uint64_t min_pinned(const PipelineOptions& pipeline);

// The Levenshtein distance, in bytes.
std::size_t edit_distance(std::string_view a, std::string_view b);

std::string lower_case(std::string_view text);
// Whether one text is a prefix of the other, of at least three characters, without leading dashes.
bool is_part(std::string_view a, std::string_view b);

// The most similar known word; empty if none is similar.
template <class Known>
std::string_view nearest(std::string_view text, const Known& words) {
    const std::string folded = lower_case(text);
    std::string_view best;
    std::size_t fewest = text.size() > 4 ? 3 : 2;  // smaller distances count as similar
    for (std::string_view word : words) {
        const std::size_t distance = edit_distance(folded, word);
        if (distance < fewest) {
            fewest = distance;
            best = word;
        }
    }
    if (!best.empty()) return best;
    for (std::string_view word : words) {
        if (is_part(folded, word)) return word;
    }
    return {};
}

}  // namespace gpunbd::config::rules
