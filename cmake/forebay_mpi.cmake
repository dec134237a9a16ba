# The MPIs that are here, each as an imported target: forebay_mpi::mpich and forebay_mpi::openmpi.
# Their own compiler wrappers say where they are (the suffixed ones: the plain names belong to
# whichever the system prefers). FOREBAY_MPIS lists those found; one that is absent costs a line.

# Sets forebay_mpi::NAME from the wrapper's flags.
function(forebay_mpi_import name flags)
  separate_arguments(words UNIX_COMMAND "${flags}")
  set(includes ${words})
  list(FILTER includes INCLUDE REGEX "^-I")
  list(TRANSFORM includes REPLACE "^-I" "")
  set(folders ${words})
  list(FILTER folders INCLUDE REGEX "^-L")
  list(TRANSFORM folders REPLACE "^-L" "")
  set(names ${words})
  list(FILTER names INCLUDE REGEX "^-l")
  list(TRANSFORM names REPLACE "^-l" "")
  set(libraries)
  foreach(library ${names})
    # By its path: two MPIs' folders side by side must not find each other's.
    find_library(FOREBAY_MPI_${name}_${library} ${library} PATHS ${folders} NO_DEFAULT_PATH)
    list(APPEND libraries ${FOREBAY_MPI_${name}_${library}})
  endforeach()
  add_library(forebay_mpi::${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(forebay_mpi::${name} SYSTEM INTERFACE ${includes})
  target_link_libraries(forebay_mpi::${name} INTERFACE ${libraries})
  # The C++ bindings that MPI 3 removed.
  target_compile_definitions(forebay_mpi::${name} INTERFACE MPICH_SKIP_MPICXX OMPI_SKIP_MPICXX)
endfunction()

# forebay_mpi_find(NAME ARGUMENTS): asks mpicc.NAME for its flags.
function(forebay_mpi_find name)
  find_program(FOREBAY_MPICC_${name} mpicc.${name})
  if(FOREBAY_MPICC_${name})
    foreach(argument ${ARGN})
      execute_process(COMMAND ${FOREBAY_MPICC_${name}} ${argument} OUTPUT_VARIABLE shown
                      OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
      string(APPEND flags " ${shown}")
    endforeach()
  endif()
  if(NOT FOREBAY_MPICC_${name} OR failed)
    message(STATUS "mpicc.${name} is not here: built without it")
    return()
  endif()
  forebay_mpi_import(${name} "${flags}")
  set(FOREBAY_MPIS ${FOREBAY_MPIS} ${name} PARENT_SCOPE)
endfunction()

set(FOREBAY_MPIS)
forebay_mpi_find(mpich -show)
forebay_mpi_find(openmpi -showme:compile -showme:link)

# forebay_mpi_module(NAME SOURCES x.cc ... [DEPENDS core ...] [LIBS ...]): the sources compiled once
# for each MPI, as the static libraries forebay_NAME_mpich and forebay_NAME_openmpi.
function(forebay_mpi_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LIBS" ${ARGN})
  list(TRANSFORM ARG_DEPENDS PREPEND forebay_)
  foreach(mpi ${FOREBAY_MPIS})
    add_library(forebay_${name}_${mpi} STATIC ${ARG_SOURCES})
    target_include_directories(forebay_${name}_${mpi} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(forebay_${name}_${mpi} PUBLIC ${ARG_DEPENDS} ${ARG_LIBS}
                          forebay_mpi::${mpi})
    forebay_headers(forebay_${name}_${mpi} library)
  endforeach()
endfunction()

# forebay_mpi_test(NAME MODULE m SOURCES x.cc ...): a program of one rank, with a main of its own
# that returns 0 if all is well, for each MPI: NAME_mpich and NAME_openmpi. Not for sanitizers, which
# find much in an MPI library.
function(forebay_mpi_test name)
  cmake_parse_arguments(ARG "" "MODULE" "SOURCES" ${ARGN})
  if(FOREBAY_SANITIZE)
    return()
  endif()
  foreach(mpi ${FOREBAY_MPIS})
    add_executable(${name}_${mpi} ${ARG_SOURCES})
    target_link_libraries(${name}_${mpi} PRIVATE forebay_${ARG_MODULE}_${mpi})
    add_test(NAME ${name}_${mpi} COMMAND ${name}_${mpi})
    set_tests_properties(${name}_${mpi} PROPERTIES TIMEOUT 120 ENVIRONMENT
      "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
  endforeach()
endfunction()
