#include "server/net/credentials/validity.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <memory>

#include "server/net/credentials/certificate_folder.hpp"

namespace gpunbd::server {

namespace {

struct FreeEntries {
    void operator()(BIO* file) const noexcept { ::BIO_free(file); }
    void operator()(STACK_OF(X509_INFO) * entries) const noexcept {
        sk_X509_INFO_pop_free(entries, ::X509_INFO_free);
    }
};
using Entries = std::unique_ptr<STACK_OF(X509_INFO), FreeEntries>;

std::time_t time_of(const ASN1_TIME& time) {
    std::tm parts{};
    return ::ASN1_TIME_to_tm(&time, &parts) == 1 ? ::timegm(&parts) : 0;
}

// Of each certificate and list of a file.
std::vector<Validity> validities_in(const std::string& path) {
    std::vector<Validity> out;
    const std::unique_ptr<BIO, FreeEntries> file(::BIO_new_file(path.c_str(), "re"));
    const Entries entries(file ? ::PEM_X509_INFO_read_bio(file.get(), nullptr, nullptr, nullptr)
                               : nullptr);
    ::ERR_clear_error();
    for (int i = 0; entries && i != sk_X509_INFO_num(entries.get()); ++i) {
        const X509_INFO& each = *sk_X509_INFO_value(entries.get(), i);
        if (each.x509 != nullptr) {
            out.push_back({path, time_of(*::X509_get0_notBefore(each.x509)),
                           time_of(*::X509_get0_notAfter(each.x509))});
        } else if (each.crl != nullptr && ::X509_CRL_get0_nextUpdate(each.crl) != nullptr) {
            out.push_back({path, time_of(*::X509_CRL_get0_lastUpdate(each.crl)),
                           time_of(*::X509_CRL_get0_nextUpdate(each.crl))});
        }
    }
    return out;
}

// Of a file of which one certificate or list is enough.
std::optional<Validity> longest_validity(const std::string& path) {
    const std::vector<Validity> all = validities_in(path);
    const auto last = std::ranges::max_element(all, {}, &Validity::until);
    return last == all.end() ? std::nullopt : std::optional(*last);
}

std::string date_text(std::time_t time) { return fmt::format("{:%F %R} UTC", fmt::gmtime(time)); }

struct Finding {
    std::string problem = {};  // empty: it is valid
    const char* remedy = "";
};

Finding look_at(const Validity& its, std::time_t now) {
    if (its.until <= now) return {"expired on " + date_text(its.until), "create a new one"};
    if (its.from > now) return {"is not valid before " + date_text(its.from), "check the clock"};
    return {};
}

}  // namespace

std::optional<Validity> chain_validity(const std::string& path) {
    const std::vector<Validity> all = validities_in(path);
    if (all.empty()) return std::nullopt;
    return Validity{path, std::ranges::max_element(all, {}, &Validity::from)->from,
                    std::ranges::min_element(all, {}, &Validity::until)->until};
}

std::vector<Validity> server_validities(const config::Options& options) {
    const config::TlsOptions& tls = options.tls;
    const bool of_clients = tls.mode != config::TlsMode::off;
    if (tls.certificates.empty() || (!of_clients && !options.admin.tcp.tls)) return {};
    std::vector<std::optional<Validity>> found{
        chain_validity(in_folder(tls.certificates, server_certificate_file))};
    if ((of_clients && tls.verify_clients) || options.admin.tcp.tls) {
        found.push_back(longest_validity(in_folder(tls.certificates, authority_file)));
        found.push_back(longest_validity(in_folder(tls.certificates, revoked_file)));
    }
    std::vector<Validity> out;
    for (auto& each : found) {
        if (each) out.push_back(std::move(*each));
    }
    return out;
}

std::string why_invalid(const Validity& its, std::time_t now) {
    const Finding found = look_at(its, now);
    if (found.problem.empty()) return {};
    return fmt::format("{}: {}; {}", its.path, found.problem, found.remedy);
}

std::optional<ValidityWarning> validity_warning(const Validity& its, std::time_t now) {
    const Finding found = look_at(its, now);
    if (!found.problem.empty()) {
        return ValidityWarning{
            true, fmt::format("{}: {}, so connections in TLS fail; {}, and reload", its.path,
                              found.problem, found.remedy)};
    }
    if (its.until - now >= expires_soon) return std::nullopt;
    return ValidityWarning{false, fmt::format("{}: expires on {}; create a new one, and reload",
                                              its.path, date_text(its.until))};
}

}  // namespace gpunbd::server
