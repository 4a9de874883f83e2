// What each value may be, for YAML and the command line alike: text goes in, and out comes the
// value, or what is wrong with the text and what would be right.
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

inline constexpr std::uint64_t sector = 512;  // bytes; sizes are multiples
inline constexpr std::uint64_t max_export_size = std::uint64_t{1} << 62;  // offsets stay signed
inline constexpr std::size_t max_text = 4096;      // bytes: NBD's string limit
inline constexpr std::size_t max_unix_path = 107;  // bytes: sun_path less its NUL
inline constexpr std::size_t max_exports = 4096;
inline constexpr std::size_t max_access_rules = 1024;        // of an export
inline constexpr std::size_t max_listeners = 64;             // of each kind
inline constexpr std::size_t max_devices = 64;               // of an export, or listed
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
Checked<std::chrono::seconds> seconds(std::string_view text, IntegerRange range);  // "10", "10s"
Checked<bool> boolean(std::string_view text);
Checked<Size> export_size(std::string_view text);

Checked<std::uint64_t> port(std::string_view text);
Checked<std::uint32_t> vsock_cid(std::string_view text);  // "any" or a number
Checked<std::string> address(std::string_view text);      // numeric IPv4 or IPv6
Checked<std::string> host_name(std::string_view text);    // that, or a DNS name; for certificates
Checked<std::string> client_name(std::string_view text);  // of a client or user; a file's name, too
Checked<std::string> device_id(std::string_view text);    // in the canonical spelling of its driver
Checked<std::string> unix_path(std::string_view text);
Checked<std::string> admin_socket(std::string_view text);  // a path, or none
Checked<std::string> file_path(std::string_view text);     // of a file or folder
Checked<std::uint32_t> file_mode(std::string_view text);
Checked<std::string> owner(std::string_view text);
Checked<std::string> export_name(std::string_view text);
Checked<std::string> description(std::string_view text);
Checked<Network> network(std::string_view text);  // "10.0.0.0/8", or one address
Checked<Account> user(std::string_view text);     // by name or number, and likewise
Checked<Account> group(std::string_view text);
Checked<std::string> tls_name(std::string_view text);
Checked<std::string> psk_user(std::string_view text);

using Words = std::vector<std::string_view>;
std::string either(const Words& words);  // "a, b or c"
Wrong none_of(std::string_view text, const Words& words);

// Equal for two spellings of the same address and port.
std::string tcp_identity(const TcpListener& listener);

// What is wrong with a stripe size beside the settings it depends on, under the names that these
// have where they were made ("page_size", "--page-size").
std::optional<std::string> stripe_misfit(const ExportOptions& exported,
                                         std::string_view layout_name,
                                         std::string_view page_size_name);
// The same of the size of an export beside the blocks that clients have to keep to.
std::optional<std::string> size_misfit(const ExportOptions& exported,
                                       std::string_view minimum_name);
// What does not go together: the section of the configuration where it stands, and why.
struct Misplaced {
    std::string_view section;
    std::string what;
};
// With an export that machines swap to.
std::optional<Misplaced> swap_misfit(const Options& options);
// With an admin endpoint on TCP: where others reach it, something has to keep them out.
std::optional<Misplaced> admin_misfit(const Options& options);
// The least `pinned` with which `slots` chunks are in flight for one transfer while another one
// finds as much: 0 where the chunk size is calibrated.
std::uint64_t min_pinned(const PipelineOptions& pipeline);

// How many insertions, removals and replacements of one byte turn one text into the other.
std::size_t edit_distance(std::string_view a, std::string_view b);

std::string lower_case(std::string_view text);
// Is one the beginning of the other, dashes aside, and more than a letter or two of it?
bool is_part(std::string_view a, std::string_view b);

// The known word that was probably meant; empty where none is near.
template <class Known>
std::string_view nearest(std::string_view text, const Known& words) {
    const std::string folded = lower_case(text);
    std::string_view best;
    std::size_t fewest = text.size() > 4 ? 3 : 2;  // below this it counts as near
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
