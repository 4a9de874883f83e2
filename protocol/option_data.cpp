#include "protocol/option_data.hpp"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "protocol/bytes.hpp"
#include "protocol/constants.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::protocol {

namespace {

constexpr std::size_t max_logged = 64;

// The length of the UTF-8 sequence at the start of `text` (not empty), or 0 if it is malformed.
// Limits on the second byte exclude overlong forms, surrogates and code points past U+10FFFF.
std::size_t utf8_sequence(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
    const std::uint8_t lead = byte(0);
    if (lead < 0x80) return 1;

    std::size_t length = 0;
    std::uint8_t low = 0x80;
    std::uint8_t high = 0xbf;
    if (lead >= 0xc2 && lead <= 0xdf) {
        length = 2;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        length = 3;
        if (lead == 0xe0) low = 0xa0;
        if (lead == 0xed) high = 0x9f;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        length = 4;
        if (lead == 0xf0) low = 0x90;
        if (lead == 0xf4) high = 0x8f;
    } else {
        return 0;
    }
    if (text.size() < length || byte(1) < low || byte(1) > high) return 0;
    for (std::size_t i = 2; i < length; ++i) {
        if ((byte(i) & 0xc0) != 0x80) return 0;
    }
    return length;
}

std::string_view as_text(std::span<const std::byte> bytes) {
    return {static_cast<const char*>(static_cast<const void*>(bytes.data())), bytes.size()};
}

// Reads from the front of an option's data. Lengths are compared with the remaining length and
// never added, so they cannot overflow.
class Cursor {
 public:
    explicit Cursor(std::span<const std::byte> data) : rest_(data) {}

    template <std::unsigned_integral T>
    std::optional<T> number() {
        if (rest_.size() < sizeof(T)) return std::nullopt;
        const T value = load_be<T>(rest_.data());
        rest_ = rest_.subspan(sizeof(T));
        return value;
    }

    // A 32-bit length and that many arbitrary bytes.
    std::optional<std::string_view> raw_string() {
        const auto length = number<std::uint32_t>();
        if (!length || *length > rest_.size()) return std::nullopt;
        const std::string_view text = as_text(rest_.first(*length));
        rest_ = rest_.subspan(*length);
        return text;
    }

    std::optional<std::string_view> string() {
        const auto text = raw_string();
        if (!text || !valid_string(*text)) return std::nullopt;
        return text;
    }

    bool empty() const { return rest_.empty(); }

 private:
    std::span<const std::byte> rest_;
};

}  // namespace

bool valid_string(std::string_view text) {
    if (text.size() > max_string) return false;
    while (!text.empty()) {
        const std::size_t length = utf8_sequence(text);
        if (length == 0 || text.front() == '\0') return false;
        text.remove_prefix(length);
    }
    return true;
}

std::string for_log(std::string_view text) {
    const bool cut = text.size() > max_logged;
    std::string shown(text.substr(0, max_logged));
    std::replace_if(
        shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~' || c == '\''; }, '?');
    return '\'' + shown + (cut ? "...'" : "'");
}

void OptionReplies::header(OptionReply type, std::size_t length) {
    append_be(out_, option_reply_magic);
    append_be(out_, option_);
    append_be(out_, static_cast<std::uint32_t>(type));
    append_be(out_, static_cast<std::uint32_t>(length));
}

void OptionReplies::info(InfoType type, std::size_t length) {
    header(OptionReply::info, sizeof type + length);
    append_be(out_, static_cast<std::uint16_t>(type));
}

void OptionReplies::text(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    out_.insert(out_.end(), bytes.begin(), bytes.end());
}

void OptionReplies::ack() { header(OptionReply::ack, 0); }

void OptionReplies::error(OptionReply type, std::string_view message) {
    GPUNBD_ASSERT(message.size() <= max_string, "an error text is a string that a client accepts");
    header(type, message.size());
    text(message);
}

void OptionReplies::server(const ExportInfo& info) {
    GPUNBD_ASSERT(info.name.size() <= max_string && info.description.size() <= max_string,
                  "the texts of an export are strings that a client accepts");
    const auto name_length = static_cast<std::uint32_t>(info.name.size());
    header(OptionReply::server, sizeof name_length + info.name.size() + info.description.size());
    append_be(out_, name_length);
    text(info.name);
    text(info.description);
}

void OptionReplies::info_export(const ExportInfo& info, Headers headers) {
    const std::uint16_t flags = info.transmission_flags(headers);
    this->info(InfoType::export_, sizeof info.size + sizeof flags);
    append_be(out_, info.size);
    append_be(out_, flags);
}

void OptionReplies::info_name(const ExportInfo& info) {
    this->info(InfoType::name, info.name.size());
    text(info.name);
}

void OptionReplies::info_description(const ExportInfo& info) {
    this->info(InfoType::description, info.description.size());
    text(info.description);
}

void OptionReplies::info_block_size(const ExportInfo& info) {
    this->info(InfoType::block_size, sizeof info.minimum_block + sizeof info.preferred_block +
                                         sizeof info.maximum_payload);
    append_be(out_, info.minimum_block);
    append_be(out_, info.preferred_block);
    append_be(out_, info.maximum_payload);
}

void OptionReplies::meta_context(std::uint32_t id, std::string_view name) {
    header(OptionReply::meta_context, sizeof id + name.size());
    append_be(out_, id);
    text(name);
}

std::optional<InfoRequest> decode_info_request(std::span<const std::byte> data) {
    Cursor cursor(data);
    const auto name = cursor.string();
    if (!name) return std::nullopt;
    const auto count = cursor.number<std::uint16_t>();
    if (!count) return std::nullopt;

    InfoRequest request{.export_name = *name};
    for (unsigned i = 0; i < *count; ++i) {
        const auto info = cursor.number<std::uint16_t>();
        if (!info) return std::nullopt;
        switch (static_cast<InfoType>(*info)) {
            case InfoType::name:
                request.name = true;
                break;
            case InfoType::description:
                request.description = true;
                break;
            case InfoType::block_size:
                request.block_size = true;
                break;
            case InfoType::export_:
                break;
            default:
                break;
        }
    }
    if (!cursor.empty()) return std::nullopt;
    return request;
}

std::optional<MetaQuery> decode_meta_query(std::span<const std::byte> data,
                                           const ExportInfo& info) {
    Cursor cursor(data);
    const auto name = cursor.string();
    if (!name) return std::nullopt;
    const auto count = cursor.number<std::uint32_t>();
    if (!count) return std::nullopt;

    MetaQuery query{.export_name = *name, .any = *count != 0};
    const auto compare = [&](MetaContext context, std::string_view full_name,
                             std::string_view text) {
        if (full_name.empty()) return;
        const bool named = text == full_name;
        if (named) query.named.add(context);
        if (named || text == name_of(context) || text == wildcard_of(context)) {
            query.matched.add(context);
        }
    };
    const std::string instance = full_name_of(MetaContext::instance, info.instance);
    const std::string dirty = std::string(name_of(MetaContext::dirty)) + "/";
    bool all_related = false;
    // By name, with its first query, since there may be thousands of queries and related exports.
    std::map<std::string_view, std::uint32_t> related;
    for (std::uint32_t i = 0; i < *count; ++i) {
        const auto text = cursor.string();
        if (!text) return std::nullopt;
        compare(MetaContext::base_allocation, name_of(MetaContext::base_allocation), *text);
        compare(MetaContext::device, name_of(MetaContext::device), *text);
        compare(MetaContext::instance, instance, *text);
        if (info.cached) compare(MetaContext::cached, name_of(MetaContext::cached), *text);
        if (text->starts_with(dirty)) {
            related.try_emplace(text->substr(dirty.size()), i);
        } else if (*text == name_of(MetaContext::dirty) ||
                   *text == wildcard_of(MetaContext::dirty)) {
            all_related = true;
        }
    }
    if (!cursor.empty()) return std::nullopt;
    std::uint32_t first = *count;
    for (const std::string& each : info.related) {
        const auto found = each.empty() ? related.end() : related.find(each);
        if (found != related.end()) {
            query.named.add(MetaContext::dirty);
            if (found->second < first) {
                first = found->second;
                query.first_related = each;
            }
        }
        const bool matched = found != related.end() || (all_related && !each.empty());
        if (matched) query.matched.add(MetaContext::dirty);
        if (matched || !query.any) query.related.push_back(each);
    }
    return query;
}

std::optional<std::string_view> decode_export_name(std::span<const std::byte> data) {
    const std::string_view name = as_text(data);
    if (!valid_string(name)) return std::nullopt;
    return name;
}

std::optional<std::string_view> name_asked_for(OptionType option, std::span<const std::byte> data) {
    if (option == OptionType::export_name) return as_text(data);
    return Cursor(data).raw_string();
}

}  // namespace gpunbd::protocol
