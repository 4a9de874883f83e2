#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/constants.hpp"
#include "protocol/export_info.hpp"
#include "protocol/meta_context.hpp"

namespace gpunbd::protocol {

// Strings on the wire: validation ("Conventions"), and a form for the log in which a client cannot
// forge lines.

// At most max_string bytes of well-formed UTF-8 without NUL.
bool valid_string(std::string_view text);

// Quotes, truncates and replaces everything but printable ASCII.
std::string for_log(std::string_view text);

// Replies to options ("Fixed newstyle negotiation"), appended to the output.
// Writes the replies to one option. `option` is the number as the client sent it, known or not.
class OptionReplies {
 public:
    OptionReplies(std::vector<std::byte>& out, std::uint32_t option) : out_(out), option_(option) {}

    void ack();
    // `message` never echoes the client's bytes, since a reply must not exceed the string limit
    // because of a long name.
    void error(OptionReply type, std::string_view message);
    void server(const ExportInfo& info);
    void info_export(const ExportInfo& info, Headers headers);
    void info_name(const ExportInfo& info);
    void info_description(const ExportInfo& info);
    void info_block_size(const ExportInfo& info);
    // `id`: 0 for LIST.
    void meta_context(std::uint32_t id, std::string_view name);

 private:
    void header(OptionReply type, std::size_t length);
    void info(InfoType type, std::size_t length);
    void text(std::string_view text);

    std::vector<std::byte>& out_;
    std::uint32_t option_;
};

// The data of options, decoded completely before anything is answered, so that a malformed option
// changes nothing ("Option types").
// INFO and GO. Views point into the option's data.
struct InfoRequest {
    std::string_view export_name;
    bool name = false;
    bool description = false;
    bool block_size = false;
};

// LIST_META_CONTEXT and SET_META_CONTEXT, reduced to the contexts of this server.
struct MetaQuery {
    std::string_view export_name;
    bool any = false;           // at least one query was sent; otherwise all are meant
    MetaContexts matched = {};  // by a query of their name or a wildcard
    MetaContexts named = {};    // by a query of their name
    // The related exports of MetaContext::dirty: those that `matched` means, and the first that
    // `named` means. They refer to the names in the export's information.
    std::vector<std::string_view> related = {};
    std::string_view first_related = {};
};

// Nothing if a length does not fit the data, bytes are left over, or a string is invalid.
std::optional<InfoRequest> decode_info_request(std::span<const std::byte> data);
// `info`: of the export, which outlives the result.
std::optional<MetaQuery> decode_meta_query(std::span<const std::byte> data, const ExportInfo& info);
std::optional<std::string_view> decode_export_name(std::span<const std::byte> data);

// For the log: the name at the start of an option, even if the option is malformed.
std::optional<std::string_view> name_asked_for(OptionType option, std::span<const std::byte> data);

}  // namespace gpunbd::protocol
