#include "mpiio/external_form.h"

#include <unordered_map>

namespace forebay::mpiio {
namespace {

using Form = ExternalForm::Kind;

struct Row {
  MPI_Datatype type;
  Form kind;
  uint32_t external;  // bytes of a part
  uint32_t parts = 1;
};

// MPI-4.0, table 14.2.
const Row kC[] = {
    {MPI_BYTE, Form::natural, 1},
    {MPI_PACKED, Form::natural, 1},
    {MPI_CHAR, Form::natural, 1},
    {MPI_SIGNED_CHAR, Form::integer, 1},
    {MPI_UNSIGNED_CHAR, Form::natural, 1},
    {MPI_WCHAR, Form::natural, 2},
    {MPI_SHORT, Form::integer, 2},
    {MPI_UNSIGNED_SHORT, Form::natural, 2},
    {MPI_INT, Form::integer, 4},
    {MPI_UNSIGNED, Form::natural, 4},
    {MPI_LONG, Form::integer, 4},
    {MPI_UNSIGNED_LONG, Form::natural, 4},
    {MPI_LONG_LONG_INT, Form::integer, 8},
    {MPI_UNSIGNED_LONG_LONG, Form::natural, 8},
    {MPI_FLOAT, Form::swapped, 4},
    {MPI_DOUBLE, Form::swapped, 8},
    {MPI_LONG_DOUBLE, Form::long_double, 16},
    {MPI_C_BOOL, Form::natural, 1},
    {MPI_INT8_T, Form::integer, 1},
    {MPI_INT16_T, Form::integer, 2},
    {MPI_INT32_T, Form::integer, 4},
    {MPI_INT64_T, Form::integer, 8},
    {MPI_UINT8_T, Form::natural, 1},
    {MPI_UINT16_T, Form::natural, 2},
    {MPI_UINT32_T, Form::natural, 4},
    {MPI_UINT64_T, Form::natural, 8},
    {MPI_AINT, Form::integer, 8},
    {MPI_COUNT, Form::integer, 8},
    {MPI_OFFSET, Form::integer, 8},
    {MPI_C_COMPLEX, Form::swapped, 4, 2},
    {MPI_C_FLOAT_COMPLEX, Form::swapped, 4, 2},
    {MPI_C_DOUBLE_COMPLEX, Form::swapped, 8, 2},
    {MPI_C_LONG_DOUBLE_COMPLEX, Form::long_double, 16, 2},
    {MPI_CXX_BOOL, Form::natural, 1},
    {MPI_CXX_FLOAT_COMPLEX, Form::swapped, 4, 2},
    {MPI_CXX_DOUBLE_COMPLEX, Form::swapped, 8, 2},
    {MPI_CXX_LONG_DOUBLE_COMPLEX, Form::long_double, 16, 2},
};
const Row kFortran[] = {
    {MPI_CHARACTER, Form::natural, 1},
    {MPI_LOGICAL, Form::integer, 4},
    {MPI_INTEGER, Form::integer, 4},
    {MPI_REAL, Form::swapped, 4},
    {MPI_DOUBLE_PRECISION, Form::swapped, 8},
    {MPI_COMPLEX, Form::swapped, 4, 2},
    {MPI_DOUBLE_COMPLEX, Form::swapped, 8, 2},
    // Those that an MPI may have.
    {MPI_INTEGER1, Form::integer, 1},
    {MPI_INTEGER2, Form::integer, 2},
    {MPI_INTEGER4, Form::integer, 4},
    {MPI_INTEGER8, Form::integer, 8},
#ifdef MPI_INTEGER16
    {MPI_INTEGER16, Form::integer, 16},
#endif
    {MPI_REAL4, Form::swapped, 4},
    {MPI_REAL8, Form::swapped, 8},
    {MPI_REAL16, Form::swapped, 16},  // binary128, other than a long double
    {MPI_COMPLEX8, Form::swapped, 4, 2},
    {MPI_COMPLEX16, Form::swapped, 8, 2},
    {MPI_COMPLEX32, Form::swapped, 16, 2},
#ifdef MPI_LOGICAL1
    {MPI_LOGICAL1, Form::integer, 1},
#endif
#ifdef MPI_LOGICAL2
    {MPI_LOGICAL2, Form::integer, 2},
#endif
#ifdef MPI_LOGICAL4
    {MPI_LOGICAL4, Form::integer, 4},
#endif
#ifdef MPI_LOGICAL8
    {MPI_LOGICAL8, Form::integer, 8},
#endif
};

Error no_such_type() {
  return Error(EINVAL, "external32 has no such type");
}

// With the size that it has in memory.
Result<ExternalForm> complete(const Row& row) {
  int size = 0;
  if (PMPI_Type_size(row.type, &size) != MPI_SUCCESS || size <= 0) return no_such_type();
  const ExternalForm form{row.kind, static_cast<uint32_t>(size) / row.parts, row.external,
                          row.parts};
  const bool good = row.kind == Form::swapped       ? form.native == form.external
                    : row.kind == Form::long_double ? form.native == sizeof(long double)
                                                    : true;
  return good ? Result<ExternalForm>(form) : no_such_type();
}

std::unordered_map<MPI_Datatype, ExternalForm> all_forms() {
  std::unordered_map<MPI_Datatype, ExternalForm> forms;
  const auto add = [&](const Row& row) {
    if (row.type == MPI_DATATYPE_NULL) return;
    if (const auto form = complete(row)) forms.emplace(row.type, *form);
  };
  for (const Row& row : kC) add(row);
  for (const Row& row : kFortran) add(row);
  return forms;
}

// MPI-4.0, 19.1.9: decimal digits and exponents that a real, or digits that an integer must have.
struct Wanted {
  int precision, range;
};

Row real_row(MPI_Datatype type, Wanted wanted, uint32_t parts) {
  constexpr int kDigitsOfLongDouble = 18;  // of one with 80 bits
  const bool huge = wanted.precision > 15 || wanted.range > 307;
  if (!huge) {
    const bool small = wanted.precision <= 6 && wanted.range <= 37;
    return {type, Form::swapped, small ? 4u : 8u, parts};
  }
  const bool quad = wanted.precision > kDigitsOfLongDouble;
  return {type, quad ? Form::swapped : Form::long_double, 16, parts};
}

Row integer_row(MPI_Datatype type, int digits) {
  const uint32_t bytes = digits > 18 ? 16 : digits > 9 ? 8 : digits > 4 ? 4 : digits > 2 ? 2 : 1;
  return {type, Form::integer, bytes};
}

Result<ExternalForm> parametrized(MPI_Datatype type) {
  int integers = 0, addresses = 0, types = 0, combiner = 0;
  int arguments[2] = {};
  if (PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS ||
      combiner == MPI_COMBINER_NAMED || integers < 1 || integers > 2 || types != 0 ||
      PMPI_Type_get_contents(type, integers, 0, 0, arguments, nullptr, nullptr) != MPI_SUCCESS)
    return no_such_type();
  const Wanted wanted{arguments[0], arguments[1]};
  switch (combiner) {
    case MPI_COMBINER_F90_REAL:
      return complete(real_row(type, wanted, 1));
    case MPI_COMBINER_F90_COMPLEX:
      return complete(real_row(type, wanted, 2));
    case MPI_COMBINER_F90_INTEGER:
      return complete(integer_row(type, arguments[0]));
    default:
      return no_such_type();
  }
}

}  // namespace

Result<ExternalForm> external_form(MPI_Datatype primitive) {
  static const auto forms = all_forms();
  const auto found = forms.find(primitive);
  return found == forms.end() ? parametrized(primitive) : found->second;
}

}  // namespace forebay::mpiio
