#include "protocol/negotiation.hpp"

#include <algorithm>
#include <utility>

#include "protocol/bytes.hpp"
#include "protocol/option_data.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::protocol {
namespace {

constexpr std::size_t export_name_padding = 124;  // bytes, unless NO_ZEROES

// LIST is answered in parts. A part ends with the export that makes it reach this size.
constexpr std::size_t part_of_list = 8 * 1024;  // bytes
static_assert(part_of_list + 2 * max_string + 64 <= Negotiation::max_output);

constexpr const char* shutting_down = "the server is shutting down";
constexpr const char* unknown_export = "unknown export";
constexpr const char* other_contents = "the contents differ from those agreed on";
constexpr const char* only_in_tls = "TLS is required: send STARTTLS first";
constexpr std::size_t max_told = 4;  // names of exports in a log line
const ExportInfo no_export;

std::string in_words(std::string_view export_name) {
    return export_name.empty() ? "the default export" : "export " + for_log(export_name);
}

// "'a', 'b' and 7 more"
std::string some_names(const ExportDirectory& exports) {
    std::string names;
    std::size_t count = 0;
    for (Listing all = exports.list();; ++count) {
        const auto info = exports.next(all);
        if (!info) break;
        if (count < max_told) names += (count == 0 ? "" : ", ") + for_log(info->name);
    }
    if (count == 0) return "nothing";
    if (count > max_told) names += " and " + std::to_string(count - max_told) + " more";
    return names;
}

bool names_an_export(OptionType option) {
    switch (option) {
        case OptionType::export_name:
        case OptionType::info:
        case OptionType::go:
        case OptionType::list_meta_context:
        case OptionType::set_meta_context:
            return true;
        default:
            return false;
    }
}

// Options that fixed newstyle answers with replies.
bool supported(OptionType option, TlsMode tls) {
    switch (option) {
        case OptionType::starttls:
            return tls != TlsMode::off;
        case OptionType::list:
        case OptionType::info:
        case OptionType::go:
        case OptionType::structured_reply:
        case OptionType::list_meta_context:
        case OptionType::set_meta_context:
        case OptionType::extended_headers:
            return true;
        default:
            return false;
    }
}

}  // namespace

Negotiation::Negotiation(const ExportDirectory& directory, TlsMode tls)
    : directory_(&directory), tls_(tls) {}

std::vector<std::byte> Negotiation::greeting() const {
    std::vector<std::byte> out;
    append_be(out, init_magic);
    append_be(out, option_magic);
    append_be(out, static_cast<std::uint16_t>(flag_fixed_newstyle | flag_no_zeroes));
    return out;
}

Negotiation::Next Negotiation::feed(std::span<const std::byte> bytes, std::size_t& used) {
    used = 0;
    const bool granted = next_ == Next::start_tls;
    answered_ = false;
    if (listing_) go_on_listing();
    if (std::exchange(waiting_, false)) on_option();
    while (next_ == Next::receive && !answered_ && used < bytes.size()) {
        used += take(bytes.subspan(used));
    }
    if (next_ == Next::start_tls && used < bytes.size()) {
        close("unencrypted bytes after STARTTLS");
    } else if (next_ == Next::start_tls && !granted) {
        OptionReplies(output_, option_).ack();
    }
    if (waiting_) return Next::wait;
    return next_ == Next::receive && (listing_ || used < bytes.size()) ? Next::more : next_;
}

void Negotiation::enter_tls() {
    GPUNBD_ASSERT(next_ == Next::start_tls && !inside_tls_, "TLS starts once, after STARTTLS");
    GPUNBD_ASSERT(output_.empty(), "the answer to STARTTLS was sent in plain text");
    Negotiation fresh(*directory_, tls_);
    fresh.inside_tls_ = true;
    fresh.stage_ = Stage::option_header;
    fresh.fixed_newstyle_ = fixed_newstyle_;
    fresh.no_zeroes_ = no_zeroes_;
    fresh.shut_down_ = shut_down_;
    fresh.options_ = options_;  // the limit per client is not reset
    *this = std::move(fresh);
}

std::vector<std::byte> Negotiation::take_output() { return std::exchange(output_, {}); }

void Negotiation::shut_down() { shut_down_ = true; }

const NegotiatedOptions& Negotiation::negotiated() const {
    GPUNBD_ASSERT(next_ == Next::transmit, "options hold once the negotiation has ended");
    return negotiated_;
}

const std::string& Negotiation::reason() const { return reason_; }

Asked Negotiation::asked() const {
    Asked asked{.export_name = asked_, .refusal = refusal_};
    const std::string name = asked_ ? in_words(*asked_) : "an export";
    if (refusal_ == unknown_export) {
        asked.words = "asked for " + name + ", " + directory_->why_not(*asked_) +
                      "; offered: " + some_names(*directory_);
    } else if (!refusal_.empty()) {
        asked.words = "asked for " + name + ", refused: " + refusal_;
    } else if (asked_) {
        asked.words = "asked about " + name;
    } else if (listed_) {
        asked.words = "listed the exports";
    }
    return asked;
}

std::size_t Negotiation::take(std::span<const std::byte> bytes) {
    std::size_t taken = 0;
    switch (stage_) {
        case Stage::client_flags:
            taken = gather(bytes, client_flags_size);
            if (header_filled_ == client_flags_size) on_client_flags();
            break;
        case Stage::option_header:
            taken = gather(bytes, option_header_size);
            if (header_filled_ == option_header_size) on_option_header();
            break;
        case Stage::option_data:
            GPUNBD_ASSERT(data_.size() < option_length_,
                          "an option is answered when it is complete");
            taken = std::min<std::size_t>(bytes.size(), option_length_ - data_.size());
            data_.insert(data_.end(), bytes.begin(),
                         bytes.begin() + static_cast<std::ptrdiff_t>(taken));
            if (data_.size() == option_length_) {
                on_option();
                if (!waiting_) data_ = {};  // freed before the answer is sent
            }
            break;
        case Stage::drained_data:
            GPUNBD_ASSERT(drained_ < option_length_ && data_.empty(),
                          "the data of an option that is too long is skipped, to its end");
            taken = std::min<std::size_t>(bytes.size(), option_length_ - drained_);
            drained_ += static_cast<std::uint32_t>(taken);
            if (drained_ == option_length_) on_option();
            break;
    }
    return taken;
}

std::size_t Negotiation::gather(std::span<const std::byte> bytes, std::size_t wanted) {
    const std::size_t taken = std::min(bytes.size(), wanted - header_filled_);
    std::copy_n(bytes.begin(), taken,
                header_.begin() + static_cast<std::ptrdiff_t>(header_filled_));
    header_filled_ += taken;
    return taken;
}

void Negotiation::on_client_flags() {
    const auto flags = load_be<std::uint32_t>(header_.data());
    constexpr std::uint32_t known = flag_fixed_newstyle | flag_no_zeroes;
    if ((flags & ~known) != 0) return close("unknown client flags");
    fixed_newstyle_ = (flags & flag_fixed_newstyle) != 0;
    no_zeroes_ = (flags & flag_no_zeroes) != 0;
    header_filled_ = 0;
    stage_ = Stage::option_header;
}

void Negotiation::on_option_header() {
    if (load_be<std::uint64_t>(header_.data()) != option_magic) return close("bad option magic");
    option_ = load_be<std::uint32_t>(header_.data() + 8);
    option_length_ = load_be<std::uint32_t>(header_.data() + 12);
    header_filled_ = 0;
    data_.clear();
    drained_ = 0;

    const bool export_name = static_cast<OptionType>(option_) == OptionType::export_name;
    if (++options_ > max_options) return close("too many options");
    if (!fixed_newstyle_ && !export_name)
        return close("an option other than EXPORT_NAME without fixed newstyle");
    if (export_name && option_length_ > max_string) return close("EXPORT_NAME: name too long");
    if (option_length_ > max_drained_option) return close("option data far too long");

    if (option_length_ > max_option_data) {
        stage_ = Stage::drained_data;
    } else if (option_length_ > 0) {
        data_.reserve(option_length_);
        stage_ = Stage::option_data;
    } else {
        on_option();
    }
}

void Negotiation::on_option() {
    stage_ = Stage::option_header;
    GPUNBD_ASSERT(!listing_ && !waiting_, "an option is answered before the next one");
    answered_ = true;
    const auto option = static_cast<OptionType>(option_);

    if (option == OptionType::abort) {
        OptionReplies(output_, option_).ack();
        return close({});
    }
    if (names_an_export(option)) {
        asked_.reset();
        if (const auto name = name_asked_for(option, data_)) asked_ = name->substr(0, max_string);
        refusal_.clear();
    }
    if (option == OptionType::export_name) return on_export_name();
    // The set is replaced even if the option fails.
    if (option == OptionType::set_meta_context) contexts_ = {};
    if (shut_down_) return refuse(OptionReply::err_shutdown, shutting_down);
    if (tls_is_missing() && option != OptionType::starttls)
        return refuse(OptionReply::err_tls_reqd, only_in_tls);

    if (!supported(option, tls_)) return refuse(OptionReply::err_unsup, "unsupported option");
    if (drained_ > 0) return refuse(OptionReply::err_too_big, "option data too long");

    switch (option) {
        case OptionType::list:
            return on_list();
        case OptionType::starttls:
            return on_starttls();
        case OptionType::info:
            return on_info(false);
        case OptionType::go:
            return on_info(true);
        case OptionType::structured_reply:
            return on_structured_reply();
        case OptionType::list_meta_context:
            return on_list_meta_context();
        case OptionType::set_meta_context:
            return on_set_meta_context();
        case OptionType::extended_headers:
            return on_extended_headers();
        default:
            return;
    }
}

void Negotiation::on_export_name() {
    // EXPORT_NAME has no error reply.
    const auto fail = [this](const std::string& why) {
        refusal_ = why;
        close("EXPORT_NAME: " + why);
    };
    if (shut_down_) return fail(shutting_down);
    if (tls_is_missing()) return fail(only_in_tls);
    if (negotiated_.headers == Headers::extended)
        return fail("after EXTENDED_HEADERS only GO is permitted");
    const auto name = decode_export_name(data_);
    if (!name) return fail("not a valid name");
    auto info = directory_->find(*name);
    if (!info) return fail(unknown_export);
    if (tls_is_missing_for(*info)) return fail(only_in_tls);
    if (!is_ready(*name)) return;
    info = directory_->find(*name);
    if (!info) return fail(unknown_export);
    if (has_other_contents(*info, *name)) return fail(other_contents);
    if (const std::string full = directory_->enter(*name); !full.empty()) return fail(full);

    append_be(output_, info->size);
    append_be(output_, info->transmission_flags(negotiated_.headers));
    if (!no_zeroes_) output_.resize(output_.size() + export_name_padding);
    enter_transmission(*info, *name);
}

void Negotiation::on_list() {
    if (!data_.empty()) return refuse(OptionReply::err_invalid, "LIST takes no data");
    listed_ = true;
    listing_ = directory_->list();
    go_on_listing();
}

void Negotiation::go_on_listing() {
    answered_ = true;
    if (shut_down_) {
        listing_.reset();
        return refuse(OptionReply::err_shutdown, shutting_down);
    }
    OptionReplies replies(output_, option_);
    while (output_.size() < part_of_list) {
        const auto info = directory_->next(*listing_);
        if (!info) {
            listing_.reset();
            return replies.ack();
        }
        if (!tls_is_missing_for(*info)) replies.server(*info);
    }
}

void Negotiation::on_starttls() {
    if (!data_.empty()) return refuse(OptionReply::err_invalid, "STARTTLS takes no data");
    if (inside_tls_) return refuse(OptionReply::err_invalid, "TLS is already active");
    next_ = Next::start_tls;  // feed() sends the ACK if no bytes follow
}

void Negotiation::on_info(bool go) {
    const auto request = decode_info_request(data_);
    if (!request) return refuse(OptionReply::err_invalid, "malformed export information request");
    auto info = directory_->find(request->export_name);
    if (!info) return refuse(OptionReply::err_unknown, unknown_export);
    if (tls_is_missing_for(*info)) return refuse(OptionReply::err_tls_reqd, only_in_tls);
    if (go) {
        if (!is_ready(request->export_name)) return;
        info = directory_->find(request->export_name);
        if (!info) return refuse(OptionReply::err_unknown, unknown_export);
        if (has_other_contents(*info, request->export_name))
            return refuse(OptionReply::err_policy, other_contents);
        // Not ERR_UNKNOWN, since the client may open the export later.
        const std::string full = directory_->enter(request->export_name);
        if (!full.empty()) return refuse(OptionReply::err_policy, full);
    }

    OptionReplies replies(output_, option_);
    replies.info_export(*info, negotiated_.headers);
    if (request->name) replies.info_name(*info);
    if (request->description) replies.info_description(*info);
    if (request->block_size || !info->default_block_sizes()) replies.info_block_size(*info);
    replies.ack();
    if (go) enter_transmission(*info, request->export_name);
}

void Negotiation::on_structured_reply() {
    if (!data_.empty()) return refuse(OptionReply::err_invalid, "STRUCTURED_REPLY takes no data");
    if (negotiated_.headers == Headers::extended)
        return refuse(OptionReply::err_ext_header_reqd, "extended headers are already negotiated");
    negotiated_.headers = Headers::structured;
    OptionReplies(output_, option_).ack();
}

// Repeating it changes nothing, as with STRUCTURED_REPLY.
void Negotiation::on_extended_headers() {
    if (!data_.empty()) return refuse(OptionReply::err_invalid, "EXTENDED_HEADERS takes no data");
    negotiated_.headers = Headers::extended;
    OptionReplies(output_, option_).ack();
}

void Negotiation::on_list_meta_context() {
    const auto info = context_subject();
    const auto query = decode_meta_query(data_, info ? *info : no_export);
    if (!query) return refuse(OptionReply::err_invalid, "malformed context query");
    if (!info) return refuse(OptionReply::err_unknown, unknown_export);

    OptionReplies replies(output_, option_);
    for (const MetaContext context : all_contexts) {
        if (context == MetaContext::dirty || (context == MetaContext::cached && !info->cached)) {
            continue;
        }
        const std::string name = full_name_of(context, info->instance);
        if (name.empty() || (query->any && !query->matched.has(context))) continue;
        replies.meta_context(0, name);
    }
    // As many as fit. A client may select others too.
    for (const std::string_view related : query->related) {
        if (output_.size() >= part_of_list) break;
        replies.meta_context(0, full_name_of(MetaContext::dirty, related));
    }
    replies.ack();
}

void Negotiation::on_set_meta_context() {
    if (negotiated_.headers == Headers::simple)
        return refuse(OptionReply::err_invalid,
                      "SET_META_CONTEXT needs structured replies or extended headers");
    const auto info = context_subject();
    const auto query = decode_meta_query(data_, info ? *info : no_export);
    if (!query) return refuse(OptionReply::err_invalid, "malformed context query");
    if (!info) return refuse(OptionReply::err_unknown, unknown_export);

    OptionReplies replies(output_, option_);
    context_export_ = query->export_name;
    context_instance_ = info->instance;
    context_related_ = query->first_related;
    contexts_ = query->named;
    for (const MetaContext context : all_contexts) {
        if (!contexts_.has(context)) continue;
        const std::string& end =
            context == MetaContext::dirty ? context_related_ : context_instance_;
        replies.meta_context(id_of(context), full_name_of(context, end));
    }
    replies.ack();
}

// The export of a context query. TLS_REQD is only for INFO and GO ("SELECTIVETLS mode"): here an
// export that requires TLS does not exist.
std::optional<ExportInfo> Negotiation::context_subject() const {
    const auto name = name_asked_for(static_cast<OptionType>(option_), data_);
    auto info = name ? directory_->find(*name) : std::nullopt;
    if (info && tls_is_missing_for(*info)) info.reset();
    return info;
}

// The export may have been replaced since the client learned its id, and a related one may be gone.
bool Negotiation::has_other_contents(const ExportInfo& info, std::string_view asked_name) const {
    if (context_export_ != asked_name) return false;
    if (contexts_.has(MetaContext::instance) && context_instance_ != info.instance) return true;
    return contexts_.has(MetaContext::dirty) &&
           std::ranges::find(info.related, context_related_) == info.related.end();
}

void Negotiation::enter_transmission(const ExportInfo& info, std::string_view asked_name) {
    GPUNBD_ASSERT(next_ == Next::receive, "the transmission phase begins once");
    GPUNBD_ASSERT(contexts_.none() || negotiated_.headers != Headers::simple,
                  "contexts are selected only after headers that can report them");
    negotiated_.export_info = info;
    if (context_export_ == asked_name) {
        negotiated_.contexts = contexts_;
        negotiated_.related = context_related_;
    }
    next_ = Next::transmit;
}

bool Negotiation::is_ready(std::string_view name) {
    waiting_ = !directory_->ready(name);
    return !waiting_;
}

void Negotiation::refuse(OptionReply error, std::string_view message) {
    if (names_an_export(static_cast<OptionType>(option_))) refusal_ = message;
    OptionReplies(output_, option_).error(error, message);
}

void Negotiation::close(std::string reason) {
    reason_ = std::move(reason);
    next_ = Next::close;
}

}  // namespace gpunbd::protocol
